#!/usr/bin/env bash
# What a release publishes beside its images, into a folder: tools/release.sh PYTHON FOLDER
#   the wheel; for the wheel and each image what it consists of (CycloneDX, from the pins with their hashes); checksums of all of these
#   SIGNING_KEY  an SSH key that signs the checksums
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)

bill() { # NAME PART...: the pins of parts, in CycloneDX's JSON
    local name=$1 files=()
    shift
    for part; do files+=("images/$part/requirements.txt"); done
    sort -u "${files[@]}" | PYTHONWARNINGS=ignore "$python" -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible \
        --output-file "$folder/$name-$version.cdx.json" -
}

"$python" -m build --quiet --no-isolation --wheel --outdir "$folder"
bill anchorage-operator operator
bill anchorage-server learning server
bill anchorage-agent learning agent
bill anchorage operator learning server agent
cd "$folder"
sha256sum -- *"-$version"*.cdx.json *"-$version"*.whl >SHA256SUMS
rm -f SHA256SUMS.sig
if [[ -n ${SIGNING_KEY:-} ]]; then ssh-keygen -q -Y sign -f "$SIGNING_KEY" -n anchorage SHA256SUMS; fi
cat SHA256SUMS

#!/usr/bin/env bash
# Builds images with whatever builder is there: images/build.sh [operator] [server] [agent] (none: all).
#   BUILDER      buildah, docker or podman; empty: the first one found
#   BASE         base image with Python 3.11, for a release by its digest (name@sha256:...); empty: the Dockerfiles' own, by a tag
#   RELEASE      anything: refuse a base that is not named by its digest; empty: say so and go on
#   REGISTRY     where the names begin; localhost
#   PIP_CONF     pip configuration for the build alone, such as an index of your own; it does not get into the image
#   BUILD_FLAGS  more flags for the builder
set -euo pipefail
cd "$(dirname "$0")/.."

builder=${BUILDER:-}
if [[ -z $builder ]]; then
    for candidate in buildah docker podman; do
        if command -v "$candidate" >/dev/null; then builder=$candidate && break; fi
    done
fi
if [[ -z $builder ]]; then
    echo 'found no builder; install buildah, docker or podman, or name one with BUILDER' >&2
    exit 2
fi

if [[ ! ${BASE:-} =~ @sha256:[0-9a-f]{64}$ ]]; then
    echo "the base image ${BASE:-of the Dockerfiles} is named by a tag, which may be another image tomorrow; set BASE=name@sha256:..." >&2
    if [[ -n ${RELEASE:-} ]]; then exit 2; fi
fi

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
epoch=${SOURCE_DATE_EPOCH:-315532800} # 1980, not the commit's time: layers that did not change keep their digest
arguments=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "SOURCE_DATE_EPOCH=$epoch")
if [[ -n ${BASE:-} ]]; then arguments+=(--build-arg "BASE=$BASE"); fi
read -r -a flags <<<"${BUILD_FLAGS:-}"

conf=${PIP_CONF:-}
if [[ -z $conf ]]; then
    conf=$(mktemp)
    trap 'rm -f "$conf"' EXIT
fi
arguments+=(--secret "id=pip,src=$conf")
case $builder in
    *docker) export DOCKER_BUILDKIT=1 && command=(build) ;;
    *) command=(build --layers --timestamp "$epoch") ;; # of every file: the same sources give the same layers
esac

if (($# == 0)); then set -- operator server agent; fi
for part; do
    "$builder" "${command[@]}" "${arguments[@]}" "${flags[@]}" \
        --tag "${REGISTRY:-localhost}/anchorage-$part:$version" --file "images/$part/Dockerfile" .
done

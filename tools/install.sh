#!/usr/bin/env bash
# Installs the project for development: tools/install.sh PYTHON EXTRAS
# uv needs a quarter of pip's time. pip does it where uv cannot be had, and where pip is told of another index, which uv would not read.
#   TORCH_INDEX  a further index, such as PyTorch's for processors without a GPU
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
packages=(--editable ".[$2]")
if [[ -n ${TORCH_INDEX:-} ]]; then packages+=(--extra-index-url "$TORCH_INDEX"); fi
pip=("$python" -m pip --disable-pip-version-check)
if ! "${pip[@]}" config list | grep index-url >/dev/null && "${pip[@]}" install --quiet 'uv>=0.9'; then
    # best match, as pip chooses: otherwise whatever the further index has would come from there, however old
    if "$python" -m uv pip install --quiet --compile-bytecode --python "$python" --index-strategy unsafe-best-match "${packages[@]}"; then exit; fi
    echo 'uv could not install it; pip tries' >&2
fi
exec "${pip[@]}" install --quiet "${packages[@]}"

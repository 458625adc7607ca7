#!/usr/bin/env bash
# Installs what the cluster tests need and compiles what clusters are made of, so that the tests themselves start at once.
# Where something is impossible (no root, no apt), it says so and ends well: the tests are then skipped with the same message.
set -euo pipefail
cd "$(dirname "$0")"
PYTHON=${PYTHON:-../../.venv/bin/python}

if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    packages=()
    for entry in containerd:containerd conntrack:conntrack debootstrap:debootstrap ip:iproute2 iptables:iptables \
        nsenter:util-linux runc:runc; do
        command -v "${entry%%:*}" >/dev/null || packages+=("${entry#*:}")
    done
    [[ -x /usr/lib/cni/bridge ]] || packages+=(containernetworking-plugins)
    if ((${#packages[@]})); then
        apt-get update --quiet --quiet
        DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends "${packages[@]}"
    fi
fi

if ! lacking=$("$PYTHON" -m kube missing); then
    printf 'The cluster tests will be skipped: this machine lacks\n%s\n' "$lacking"
    exit 0
fi
"$PYTHON" -m kube build
PYTHONPATH=../support "$PYTHON" -c 'import cluster_site; print(cluster_site.images())'

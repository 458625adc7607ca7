"""What this machine lacks for clusters of its own."""

import os
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from kube.cgroups import hierarchies
from kube.commands import CommandFailed, run
from kube.components import cache_folder
from kube.images import SUITE, SUITE_PYTHON
from kube.network import Namespace

PROGRAMS = {  # program: Debian's package
    "containerd": "containerd",
    "conntrack": "conntrack",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
    "runc": "runc",
}
PLUGINS = Path("/usr/lib/cni")  # of containernetworking-plugins
GO = (1, 24)


def missing() -> list[str]:
    """Return, in words, everything that keeps this machine from starting clusters; empty when it can."""
    lacks = []
    if sys.platform != "linux":
        return ["Linux"]
    if sys.version_info[:2] != SUITE_PYTHON:
        lacks.append(f"Python {'.'.join(map(str, SUITE_PYTHON))}, whose packages Debian {SUITE}'s Python can import")
    if os.geteuid() != 0:
        return [*lacks, "root"]
    packages = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if not (PLUGINS / "bridge").exists():
        packages.add("containernetworking-plugins")
    if packages:
        lacks.append(f"the Debian packages {' '.join(sorted(packages))}")
    if not _has_go():
        lacks.append(f"Go {GO[0]}.{GO[1]} or newer")
    if not hierarchies():
        lacks.append("control groups under /sys/fs/cgroup that can be written")
    if shutil.which("ip") and not _has_network_namespaces():
        lacks.append("the right to make network namespaces and bridges")
    if not _has_overlays():
        lacks.append(f"a file system below {cache_folder()} that can carry overlay mounts, and the right to mount")
    return lacks


def _has_go() -> bool:
    if shutil.which("go") is None:
        return False
    match = re.search(r"go(\d+)\.(\d+)", run("go", "version", check=False))
    return match is not None and (int(match[1]), int(match[2])) >= GO


def _has_network_namespaces() -> bool:
    trial = Namespace(f"anchorage-try{os.getpid()}")
    try:
        trial.create()
    except CommandFailed:
        return False
    finally:
        trial.remove()
    return True


def _has_overlays() -> bool:
    """See whether containers' layers can be mounted where containerd keeps them: not so on an overlay itself."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache_folder()) as folder:
        lower, upper, work, merged = (Path(folder, name) for name in ("lower", "upper", "work", "merged"))
        for path in (lower, upper, work, merged):
            path.mkdir()
        try:
            run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", merged)
        except CommandFailed:
            return False
        run("umount", merged)
    return True

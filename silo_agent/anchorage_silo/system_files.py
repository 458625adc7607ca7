"""Which files of the system a trainer needs: programs, libraries, settings of libraries, devices, and what the kernel tells of the machine."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anchorage
from anchorage.api.regular_files import read_regular

READ = (
    "/usr", "/bin", "/sbin", "/lib*", "/nix/store", "/gnu/store", "/opt/cuda*", "/opt/intel", "/opt/nvidia", "/opt/rocm*",
    # settings of the loader, the C library, TLS, fonts and drivers
    "/etc/ld.so.*", "/etc/localtime", "/etc/timezone", "/etc/locale.*", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/hosts",
    "/etc/host.conf", "/etc/gai.conf", "/etc/protocols", "/etc/services", "/etc/*-release", "/etc/mime.types", "/etc/ssl/openssl.cnf",
    "/etc/ssl/certs", "/etc/pki/tls/openssl.cnf", "/etc/crypto-policies", "/etc/fonts", "/etc/python3*", "/etc/OpenCL", "/etc/vulkan",
    "/etc/nvidia", "/etc/cufile.json",
    # the machine: processors, memory, devices, limits of a container
    "/proc/cgroups", "/proc/cmdline", "/proc/cpuinfo", "/proc/devices", "/proc/driver", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo",
    "/proc/modules", "/proc/stat", "/proc/sys/kernel", "/proc/sys/vm", "/proc/uptime", "/proc/version", "/proc/vmstat",
    "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/fs/cgroup", "/sys/kernel/mm", "/sys/module",
)  # fmt: skip
"""Patterns of what is read."""
DEVICES = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
    "/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/accel", "/dev/dxg", "/dev/hl*", "/dev/gdrdrv",
)  # fmt: skip
"""Patterns of devices, which are read and written."""
SHARED_MEMORY = "/dev/shm"
LIBRARIES = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
"""Environment variables that name folders of libraries."""


def matching(patterns: Iterable[str]) -> Iterator[Path]:
    """Yield the files and folders of this machine that match, links followed."""
    for pattern in patterns:
        yield from (path.resolve() for path in Path("/").glob(pattern.removeprefix("/")))


def library_folders(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the folders of libraries that the environment and the loader's settings name."""
    for name in LIBRARIES:
        yield from environment.get(name, "").split(":")
    for settings in matching(("/etc/ld.so.conf", "/etc/ld.so.conf.d/*.conf")):
        try:
            lines = read_regular(settings).decode(errors="replace").splitlines()
        except OSError:
            continue
        yield from (line.strip() for line in lines if line.startswith("/"))


def python_folders() -> Iterator[str]:
    """Yield the folders of Python and its packages: those that Python searches, and those of packages that were installed as links to their source.

    The folder in which the agent was started is none, unless it is searched for another reason or this project is in it.
    """
    yield from (sys.prefix, sys.base_prefix)
    started = 0 if sys.flags.safe_path else 1  # `python -m` has that folder in front
    yield from sys.path[started:]
    yield from (str(Path(file).parents[1]) for file in (__file__, anchorage.__file__) if file)
    for package in distributions():
        try:
            origin = json.loads(package.read_text("direct_url.json") or "{}")
            editable = bool(origin.get("dir_info", {}).get("editable"))
            folder = unquote(urlsplit(str(origin["url"])).path) if editable else ""
        except (ValueError, KeyError, AttributeError):  # a package's damaged metadata name no folder
            continue
        if folder:
            yield folder


def keep_open(path: Path) -> None:
    """Keep a file or folder of /proc open for good, in the program that this process becomes, too.

    The kernel makes those anew when it needs memory; a rule on one that nobody has open is then on none.
    """
    os.set_inheritable(os.open(path, os.O_PATH), True)

"""Memory that this process may still take: the machine's, within the limits of its control groups, such as a container's or a pod's."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")

_FILES = (
    ("memory.max", "memory.current", ("inactive_file", "active_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)
"""Of versions 2 and 1: limit, use, and the lines of ``memory.stat`` that count cached files, which the kernel drops when memory is needed."""


def available_bytes(control_groups: Path = _CONTROL_GROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Return the bytes of memory that this process may still take.

    Parameters
    ----------
    control_groups : Path
        Where control groups are mounted. Version 2 has them in this folder or in ``unified``, version 1 in ``memory``.
    membership : Path
        The file that says in which groups this process is. In a container its paths may be those of the host, which are not mounted: the
        group that is mounted as the root is the container's then.
    """
    machine = int(psutil.virtual_memory().available)
    free_bytes = (_free_bytes(folder) for folder in _groups(control_groups, membership))
    return max(0, min([machine, *(nbytes for nbytes in free_bytes if nbytes is not None)]))


def _groups(control_groups: Path, membership: Path) -> Iterator[Path]:
    """Yield the folders of the memory groups that this process is in, from its own group up to the root."""
    mounts = [control_groups, control_groups / "unified", control_groups / "memory"]
    paths = {PurePosixPath("/")}
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            paths |= {PurePosixPath(name), *PurePosixPath(name).parents}
    for path in paths:
        if ".." not in path.parts:
            yield from (mount.joinpath(*path.parts[1:]) for mount in mounts)


def _free_bytes(group: Path) -> int | None:
    """Return what a group's limit leaves, in bytes; None where it has no limit."""
    for limit_name, used_name, cached_names in _FILES:
        try:
            limit = (group / limit_name).read_text().strip()
            used = int((group / used_name).read_text())
        except OSError:
            continue
        return None if limit == "max" else int(limit) - used + _cached_bytes(group, cached_names)
    return None


def _cached_bytes(group: Path, names: tuple[str, ...]) -> int:
    try:
        lines = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    counts = dict(line.split(" ", 1) for line in lines)
    return sum(int(counts.get(name, 0)) for name in names)

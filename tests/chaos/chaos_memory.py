"""A limit of memory beyond which the kernel kills a process, as a pod's limit does: a control group below the driver's own."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from chaos_waits import holds_within

END_SECONDS = 120.0
"""Time in which a trainer ends with its agent."""
_HIERARCHY = Path("/sys/fs/cgroup/memory")
_OWN_CGROUP = re.compile("^[0-9]+:memory:(/.*)$", re.MULTILINE)


class Memory:
    """Control groups (cgroup v1), each of processes that together may not take more memory than it says."""

    def __init__(self, cgroup: Path) -> None:
        self._cgroup = cgroup
        self._groups: list[Path] = []
        self._add()

    def _add(self) -> Path:
        group = self._cgroup / f"anchorage-chaos-{os.getpid()}-{len(self._groups)}"
        group.mkdir()
        self._groups.append(group)
        return group / "memory.limit_in_bytes"

    @classmethod
    def enter(cls) -> "Memory | None":
        """Make the first group; None where this may not be done."""
        actual = _OWN_CGROUP.search(Path("/proc/self/cgroup").read_text())
        if actual is None:
            return None
        with suppress(OSError):
            return cls(_HIERARCHY / actual[1].lstrip("/"))
        return None

    @property
    def command(self) -> Sequence[str]:
        """What starts a command in the newest group."""
        return "sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._groups[-1] / "cgroup.procs")

    @contextmanager
    def limit(self, size: int) -> Iterator[None]:
        """Make a group of which the kernel kills what takes more than so many bytes in all, as long as the block lasts."""
        limit = self._add()
        limit.write_text(str(size))
        try:
            yield
        finally:
            limit.write_text("-1")

    def killed(self) -> int:
        """Return how many processes of the newest group the kernel has killed."""
        words = (self._groups[-1] / "memory.oom_control").read_text().split()
        return int(words[words.index("oom_kill") + 1])

    def close(self) -> None:
        """Remove the groups, whose processes have been told to end."""
        for group in self._groups:
            holds_within(lambda group=group: not (group / "cgroup.procs").read_text(), END_SECONDS)
            group.rmdir()


def taken(pid: int) -> int:
    """Return the bytes that a process and those that it started have for themselves."""
    process = psutil.Process(pid)
    return sum(int(each.memory_full_info().uss) for each in (process, *process.children(recursive=True)))

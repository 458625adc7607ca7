"""A control group of its own for a cluster: what runs in it is found, and ended, through it."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
WEIGHT = {"cpu.shares": "20480", "cpu.weight": "2000"}
"""A cluster counts for as much as twenty processes outside it; otherwise it would for one, as it is one group."""


def is_unified() -> bool:
    """Tell whether the machine has version 2 of control groups only."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Return every mounted hierarchy in which this process may make groups: one in version 2, one per controller before."""
    roots = [ROOT] if is_unified() else [path for path in sorted(ROOT.glob("*")) if (path / "cgroup.procs").exists()]
    return [path for path in roots if os.access(path / "cgroup.procs", os.W_OK)]


@dataclass(frozen=True)
class ControlGroup:
    """A group of this name at the root of every hierarchy."""

    name: str

    def create(self) -> None:
        """Make it, with an inner group `components` for processes that are in no pod."""
        for hierarchy in hierarchies():
            group = hierarchy / self.name
            (group / "components").mkdir(parents=True, exist_ok=True)
            for path in (group, group / "components"):
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    # version 1 leaves them empty, and then nothing may enter
                    if (path / setting).exists() and not is_unified():
                        (path / setting).write_text((path.parent / setting).read_text())
            for setting, value in WEIGHT.items():
                if (group / setting).exists():
                    (group / setting).write_text(value)
            if is_unified():
                for path in (hierarchy, group):
                    controllers = (path / "cgroup.controllers").read_text().split()
                    (path / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))

    def entrance(self) -> Path:
        """Return the file into which a process writes its id to enter the inner group `components`."""
        return self._tracked() / "components" / "cgroup.procs"

    def _tracked(self) -> Path:
        return (ROOT if is_unified() else ROOT / "pids") / self.name

    def processes(self) -> list[int]:
        """Return the ids of all processes in it or below."""
        groups = []
        for file in self._tracked().rglob("cgroup.procs"):
            try:
                groups += [int(line) for line in file.read_text().split()]
            except OSError:  # it went while it was looked for
                continue
        return groups

    def kill(self, seconds: float = 20.0) -> None:
        """
        Kill everything in it, again until nothing is left.

        Raises
        ------
        TimeoutError
            Some process outlived it.
        """
        deadline = time.monotonic() + seconds
        while processes := self.processes():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the processes {processes} of {self.name} do not end")
            for process in processes:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)

    def remove(self) -> None:
        """Take the empty groups away, the innermost first."""
        for hierarchy in hierarchies():
            group = hierarchy / self.name
            inner = [path for path in group.rglob("*") if path.is_dir()] if group.exists() else []
            for path in [*sorted(inner, key=lambda each: len(each.parts), reverse=True), group]:
                if path.exists():
                    path.rmdir()

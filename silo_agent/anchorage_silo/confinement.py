"""What the trainer process may touch: ``python -m anchorage_silo.confinement GRANTS COMMAND ...`` gives up all else, and becomes COMMAND.

It runs before numpy, torch, a model or an image is loaded, so that no thread of theirs is left out. Readable stay the system, Python and the images;
writable the trainer's own folder, devices, and cache folders that the environment names. Homes, temporary files and what is the agent's alone are out
of reach, and so are memory, environment and signals of processes outside.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree

from anchorage_silo.landlock import CHANGE, NETWORK_ABI, READ, SCOPES_ABI, WRITE_FILE, Ruleset, abi, drop_capabilities
from anchorage_silo.trainer_environment import CACHES, trainer_environment

ROOT = Path("/")
HOMES = ("/home", "/root", "/tmp", "/var/tmp", "/run/user", "/run/secrets")
"""Folders of people, programs and secrets, which are no part of the system."""
LIBRARIES = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
"""Environment variables that name folders of libraries."""
SHARED = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps", "CUDA_MPS_LOG_DIRECTORY": "/var/log/nvidia-mps"}
"""Environment variables of folders that NVIDIA's multi-process service shares with its clients, and their defaults."""


@dataclass(frozen=True)
class Grants:
    """What is granted to a trainer beside the system."""

    own: str
    """The trainer's own folder."""
    images: str = ""
    """Folder of the images; empty without one."""
    hidden: tuple[str, ...] = ()
    """Files and folders that are the agent's alone, also where they are below what is granted."""
    network: bool = False
    """Whether TCP stays allowed: the processes of several devices find each other on the loopback interface."""

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return a command that confines itself to this and becomes `command`."""
        return sys.executable, "-m", "anchorage_silo.confinement", json.dumps(asdict(self)), *command


def words() -> str:
    """Say what keeps a trainer of this machine from what is the agent's."""
    if not (version := abi()):
        return "nothing: this kernel has no Landlock, so what takes the trainer over can read the silo's key and write the audit log"
    missing = [
        *(["TCP connections"] if version < NETWORK_ABI else []),
        *(["signals to other processes"] if version < SCOPES_ABI else []),
    ]
    without = f"; not kept from {' and '.join(missing)}, for which this kernel is too old" if missing else ""
    return f"Landlock (version {version}): it reads the system, Python and the images, and writes to its own folder and to devices{without}"


def confine(grants: Grants, environment: Mapping[str, str]) -> dict[str, str]:
    """Confine this process for good; return the environment with which to go on.

    Raises
    ------
    OSError
        The kernel refuses.
    """
    hidden = [Path(path).resolve() for path in grants.hidden]
    home = Path(environment.get("HOME") or "/tmp").resolve()
    apart = [*hidden, *(Path(each).resolve() for each in HOMES), *([] if home == ROOT else [home])]
    scratch = Path(grants.own, "tmp")
    rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    python = [sys.prefix, sys.base_prefix, *(each for each in sys.path if Path(each).resolve() != home)]
    libraries = [each for name in LIBRARIES for each in environment.get(name, "").split(":")]
    shared = [environment.get(name, default) for name, default in SHARED.items()]
    written = ["/dev", *shared, *(environment.get(name, "") for name in CACHES)]
    with closing(Ruleset(network=grants.network)) as rules:
        for path in _apart_from(ROOT, apart):
            rules.allow(path, READ)
        for path in _all_apart_from([*python, *libraries, grants.images], hidden):
            rules.allow(path, READ)
        for path in _all_apart_from(written, hidden):
            rules.allow(path, READ | CHANGE)
        rules.allow(Path(grants.own).resolve(), READ | CHANGE)
        rules.allow(Path("/proc"), READ | WRITE_FILE)  # a CUDA driver names its threads there
        drop_capabilities()
        rules.restrict()
    return trainer_environment(_without_secrets(environment), scratch)


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    ends = ("TOKEN", "SECRET", "PASSWORD")
    return {key: text for key, text in environment.items() if not key.startswith("OTEL_") and not key.endswith(ends)}


def _all_apart_from(paths: Iterable[str], hidden: Sequence[Path]) -> Iterator[Path]:
    """Do `_apart_from` for the paths that are named; the whole file system is none of them."""
    for found in {Path(each).resolve() for each in paths if each} - {ROOT}:
        yield from _apart_from(found, hidden)


def _apart_from(folder: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield `folder`, or where something hidden is below it, its entries apart from that, links left out."""
    if any(folder.is_relative_to(each) for each in hidden):
        return
    if not any(each.is_relative_to(folder) for each in hidden):
        yield folder
        return
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if not entry.is_symlink():
            yield from _apart_from(Path(entry.path), hidden)


def main() -> None:
    """Confine this process and become the command; exits with a message where that fails."""
    grants, *command = sys.argv[1:]
    try:
        environment = confine(Grants(**json.loads(grants)), os.environ)
    except OSError as error:
        sys.exit(f"the trainer could not be confined: {error}")
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    main()

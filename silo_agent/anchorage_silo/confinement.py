"""What the trainer process may touch: ``python -m anchorage_silo.confinement GRANTS COMMAND ...`` gives up all else, and becomes COMMAND.

It runs before numpy, torch, a model or an image is loaded, so that no thread of theirs is left out; one that is forked with them
(`anchorage.api.fork_server`) has a single thread. Readable stay programs, libraries, Python and the images; writable the trainer's own folder,
devices, and cache folders that the environment names. All other files are out of reach, and so are the network, and memory, environment and signals
of processes outside.
"""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree

from anchorage.api.fork_server import without_secrets
from anchorage_silo import seccomp
from anchorage_silo.landlock import CHANGE, NETWORK_ABI, READ, SCOPES_ABI, WRITE_FILE, Ruleset, abi, drop_capabilities
from anchorage_silo.system_files import (
    DEVICES,
    SHARED_MEMORY,
    keep_open,
    library_folders,
    matching,
    python_folders,
)
from anchorage_silo.system_files import READ as SYSTEM
from anchorage_silo.trainer_environment import CACHES, trainer_environment

ROOT, PROC = Path("/"), Path("/proc")
AS_ROOT = "the agent and its trainer run as root, so that what breaks out of either has the whole machine; run them as a user of their own"
"""What an agent of root warns of."""
PIPES, PIPES_DEFAULT = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"
LOGS, LOGS_DEFAULT = "CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"
"""Environment variables of folders that NVIDIA's multi-process service shares with its clients, and their defaults."""


@dataclass(frozen=True)
class Grants:
    """What is granted to a trainer beside the system."""

    trainer_folder: str
    """The trainer's own folder."""
    images: str = ""
    """Folder of the images; empty without one."""
    hidden: tuple[str, ...] = ()
    """Files and folders that are the agent's alone, also where they are below what is granted."""
    network: bool = False
    """Whether TCP and sockets by path stay allowed: the processes of several devices find each other so."""

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return a command that confines itself to this and becomes `command`."""
        return sys.executable, "-m", "anchorage_silo.confinement", json.dumps(asdict(self)), *command


def confinable() -> bool:
    """Return whether this machine can confine a trainer in any way."""
    return bool(abi()) or seccomp.available()


def runs_as_root() -> bool:
    """Return whether this process has root's rights on files."""
    return os.geteuid() == 0


def gaps() -> tuple[str, ...]:
    """Say from what a trainer of this machine is not kept for want of a function of the kernel."""
    version, descriptions = abi(), []
    if not version:
        descriptions.append(
            "the silo's key, the audit log and all other files of its user, as this kernel has no Landlock"
        )
    if not seccomp.available():
        but = " but by TCP" if version >= NETWORK_ABI else ""
        descriptions.append(
            f"connections{but}, as this kernel or processor has no filter of system calls that this version knows"
        )
    if 0 < version < SCOPES_ABI:
        descriptions.append("signals to other processes, as this kernel is too old")
    return tuple(descriptions)


def words(*, network: bool) -> str:
    """Say what keeps a trainer of this machine from what is the agent's, and from the network.

    Parameters
    ----------
    network : bool
        As of `Grants`.
    """
    version, filters, without = abi(), seccomp.available(), list(gaps())
    means, does = [], []
    if version:
        means.append(f"Landlock (version {version})")
        does += ["reads programs, libraries, Python and the images", "writes to its own folder and to devices"]
    if filters:
        means.append("a filter of system calls")
        if network:
            without.append("TCP and sockets by path, by which the processes of several devices find each other")
        elif shares_devices(os.environ):
            without.append("sockets by path, by which it finds NVIDIA's multi-process service")
        else:
            does.append("connects to nobody")
    sentence = " and ".join(means) or "nothing"
    sentence += f": it {', '.join(does)}" if does else ""
    return sentence + (f"; not kept from {'; nor from '.join(without)}" if without else "")


def shares_devices(environment: Mapping[str, str]) -> bool:
    """Return whether NVIDIA's multi-process service waits for clients, as root or as the agent's user."""
    try:
        pipe_status = Path(environment.get(PIPES, PIPES_DEFAULT), "control").stat()
    except OSError:
        return False
    return stat.S_ISSOCK(pipe_status.st_mode) and pipe_status.st_uid in (0, os.geteuid())


def confine(grants: Grants, environment: Mapping[str, str]) -> dict[str, str]:
    """Confine this process for good; return the environment with which to go on.

    Raises
    ------
    OSError
        The kernel refuses.
    """
    scratch = Path(grants.trainer_folder, "tmp")
    rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    drop_capabilities()
    if abi():
        with closing(Ruleset(network=grants.network)) as rules:
            _grant(rules, grants, environment)
            rules.restrict()
    if seccomp.available():
        seccomp.restrict(unix=shares_devices(environment), tcp=grants.network)
    return trainer_environment(without_secrets(environment), scratch)


def _grant(rules: Ruleset, grants: Grants, environment: Mapping[str, str]) -> None:
    hidden = [Path(path).resolve() for path in grants.hidden]
    home = Path(environment.get("HOME") or "/tmp").resolve()
    python = [each for each in python_folders() if Path(each).resolve() != home]
    shared = [environment.get(PIPES, PIPES_DEFAULT), environment.get(LOGS, LOGS_DEFAULT)]
    written = [SHARED_MEMORY, *shared, *(environment.get(name, "") for name in CACHES)]
    read = [*map(str, matching(SYSTEM)), *python, *library_folders(environment), grants.images]
    if grants.network:  # processes of further devices have folders there whose names are not known yet
        read.append(str(PROC))
    for path in _all_apart_from(read, hidden):
        if path.is_relative_to(PROC):
            keep_open(path)
        rules.allow(path, READ)
    for path in matching(DEVICES):
        rules.allow(path, READ | WRITE_FILE)
    for path in _all_apart_from(written, hidden):
        rules.allow(path, READ | CHANGE)
    rules.allow(Path(grants.trainer_folder).resolve(), READ | CHANGE)
    process_folder = PROC / str(os.getpid())
    keep_open(process_folder)
    rules.allow(process_folder, READ | WRITE_FILE)  # a CUDA driver names its threads there


def _all_apart_from(paths: Iterable[str], hidden: Sequence[Path]) -> Iterator[Path]:
    """Do `_apart_from` for the paths that are named; the whole file system is none of them."""
    for resolved in {Path(each).resolve() for each in paths if each} - {ROOT}:
        yield from _apart_from(resolved, hidden)


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


def main(become: Callable[[str, list[str], dict[str, str]], object] = os.execve) -> None:
    """Confine this process and become the command; exits with a message where that fails."""
    grants, *command = sys.argv[1:]
    try:
        environment = confine(Grants(**json.loads(grants)), os.environ)
    except OSError as error:
        sys.exit(f"the trainer could not be confined: {error}")
    become(command[0], command, environment)


if __name__ == "__main__":
    main()

"""Files that a crash leaves either as they were or as they should be."""

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def partial_path(path: Path) -> Path:
    """Return the name under which a file is written before it takes its place."""
    return path.with_name(path.name + ".partial")


@contextmanager
def replacing(path: Path, *, durable: bool = False, shared: bool = False) -> Iterator[Path]:
    """Give the name under which to write a file, and rename it to `path` when the block succeeds.

    A file that is not `shared` has one writer at a time. What an earlier process left under its temporary name may be written over.

    Parameters
    ----------
    path : Path
        The file; after a failure it is as before.
    durable : bool
        Whether the content survives a power cut once the file has its name; `sync` the folder for the name itself.
    shared : bool
        Whether several processes may write the file at once, each under a temporary name of its own; the last one's stays.

    Raises
    ------
    OSError
        The folder is missing, full or not writable.
    """
    partial = _own_name(path) if shared else partial_path(path)
    try:
        yield partial
        if durable:
            sync(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes, *, mode: int | None = None, durable: bool = False) -> None:
    """Write a small file whole or not at all, as `replacing` does.

    Parameters
    ----------
    path : Path
        The file.
    content : bytes
        What it is to hold.
    mode : int or None
        Permissions, which it has before it has content; None leaves them to the umask.
    durable : bool
        As of `replacing`.

    Raises
    ------
    OSError
        The folder is missing, full or not writable.
    """
    with replacing(path, durable=durable) as partial:
        _write(partial, content, mode, os.O_TRUNC)


def write_once(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet, durably and with mode 0600; of several writers exactly one succeeds.

    Raises
    ------
    FileExistsError
        The file is there already.
    OSError
        The folder is missing, full or not writable.
    """
    temporary = _own_name(path)
    try:
        _write(temporary, content, 0o600, os.O_EXCL)
        sync(temporary)
        place_once(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def place_once(temporary: Path, path: Path) -> None:
    """Give a whole file of the same folder the name `path`, which must not exist yet; of several callers exactly one succeeds.

    It may keep its former name as well. Where the file system has no hard links (exFAT, SMB), a lock beside the file keeps others away.

    Raises
    ------
    FileExistsError
        The name is taken.
    OSError
        The folder is not writable.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        with _lock(path):
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            temporary.replace(path)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a file's lock, a hidden file beside it, which stays: removed, two could each hold one."""
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def set_mode(place: Path, mode: int) -> None:
    """Set the permissions of a file or folder; where the file system knows none (exFAT), those of its mount stay.

    Raises
    ------
    OSError
        It is somebody else's.
    """
    try:
        place.chmod(mode)
    except PermissionError:
        if place.stat().st_uid != os.geteuid():
            raise


def sync(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _own_name(path: Path) -> Path:
    """Return a temporary name that no other writer of a file has."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def _write(path: Path, content: bytes, mode: int | None, how: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666 if mode is None else mode)
    with os.fdopen(handle, "wb") as file:
        if mode is not None:
            set_mode(path, mode)  # whatever the umask
        file.write(content)

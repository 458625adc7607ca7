"""Files that a crash leaves either as they were or as they should be, and what the file system's errors are called."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import DISK_FULL, NOT_WRITABLE, STATE_IN_USE, STORAGE_FAILED

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR}


@contextmanager
def storage_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn the file system's errors into the catalogue's.

    Parameters
    ----------
    doing : str
        What was being done, such as ``write the checkpoint of round 3``.
    path : Path
        Where.

    Raises
    ------
    AnchorageError
        DiskFull, StateNotWritable or StorageFailed in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        kind = DISK_FULL if error.errno in _FULL else NOT_WRITABLE if error.errno in _REFUSED else STORAGE_FAILED
        raise AnchorageError(kind, f"cannot {doing} in {path}: {error.strerror or error}") from error


def sync(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file whole or not at all, as seen by other processes and after this one's death (not after a power cut).

    The file has one writer: this process, by one thread at a time.

    Raises
    ------
    OSError
        The folder is full or not writable; the file is then as before.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


class FolderLock:
    """Holds a folder for this process alone; the system lets go of it when the process ends, however it ends.

    Parameters
    ----------
    folder : Path
        Must exist.

    Raises
    ------
    AnchorageError
        StateInUse when another process holds it, StateNotWritable when the lock file cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        with storage_errors("make the lock file", folder):
            self._file = os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise AnchorageError(
                STATE_IN_USE, f"another process works on {folder}; stop it or use another folder"
            ) from None

    def release(self) -> None:
        """Let go of the folder."""
        self._file.close()

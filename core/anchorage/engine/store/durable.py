"""What the file system's errors are called, and the lock of a folder."""

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

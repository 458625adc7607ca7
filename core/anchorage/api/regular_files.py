"""Opens the files that people, documents and other parties name, and never what waits or never ends, such as a named pipe or a device."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import FILE_UNREADABLE

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotARegularFileError(OSError):
    """A name is that of a named pipe, a socket or a device; ``strerror`` says of which, and ``filename`` is the name."""

    def failure(self) -> AnchorageError:
        """Return the failure of a command that was told to read it."""
        message = f"{self.filename}: {self.strerror}; name a file"
        return AnchorageError(FILE_UNREADABLE, message, redacted=f"a file that was to be read is {self.strerror}")


def open_regular(path: Path | str, *, buffering: int = -1) -> BinaryIO:
    """Open a regular file, or a link to one, for reading bytes; it returns at once whatever the name is of.

    Parameters
    ----------
    path : Path or str
        The file.
    buffering : int
        As of `open`; 0: none.

    Raises
    ------
    NotARegularFileError
        It is a named pipe, a socket or a device.
    OSError
        It is not there, a folder, or may not be read.
    """
    return open(path, "rb", buffering, opener=regular_opener)


def read_regular(path: Path | str) -> bytes:
    """Return the content of a regular file; errors as of `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def regular_opener(path: Path | str, flags: int) -> int:
    """Open a regular file as `os.open` does, or as `open` asks its opener to; errors as of `open_regular`."""
    check_regular(path)  # opening a device may do something to it
    without_waiting = flags | os.O_NONBLOCK | os.O_NOCTTY
    try:
        handle = os.open(path, without_waiting)
    except BlockingIOError:  # a file server holds a lease on it, which ends within the system's bound
        handle = os.open(path, flags)
    try:
        _refuse_irregular(os.fstat(handle), path)  # the name may have become another one's meanwhile
    except OSError:
        os.close(handle)
        raise
    return handle


def check_regular(path: Path | str) -> None:
    """Check a file before a library opens it by its name; errors as of `open_regular`."""
    _refuse_irregular(os.stat(path), path)  # noqa: PTH116 - also for a str


def _refuse_irregular(state: os.stat_result, path: Path | str) -> None:
    if stat.S_ISREG(state.st_mode):
        return
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = next((kind for is_kind, kind in _KINDS if is_kind(state.st_mode)), "something else")
    raise NotARegularFileError(errno.EINVAL, f"{kind}, not a regular file", str(path))

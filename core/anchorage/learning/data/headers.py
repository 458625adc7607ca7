"""What image files say of themselves beside pixels: whose they are, how many frames they have, and whether they may be used.

Nothing of it leaves a hospital, but for counts of kinds.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from anchorage.api.regular_files import open_regular
from anchorage.learning.data.decoders import HEAD_BYTES, decoder_for, decoders
from anchorage.learning.data.decoding import MOST_BYTES, RefusedImageError
from anchorage.learning.data.file_header import Header


class FileState(NamedTuple):
    """What changes when a file does."""

    path: str
    nbytes: int
    modified: int
    """Time of its last change, ns."""


_MOST_KNOWN = 1_000_000
_known: dict[FileState, Header | None] = {}
"""Headers that this process has read; None of a file without one."""
_asked: ContextVar[dict[FileState, Header | None] | None] = ContextVar("asked", default=None)


def take_known(headers: Mapping[FileState, Header]) -> None:
    """Take note of headers that were read before, so that these files are not opened."""
    _known.update(headers)


@contextmanager
def asked_for() -> Iterator[Mapping[FileState, Header | None]]:
    """Give the headers that `read_headers` yields in the block, by the state of their files."""
    asked: dict[FileState, Header | None] = {}
    token = _asked.set(asked)
    try:
        yield asked
    finally:
        _asked.reset(token)


def read_headers(files: Sequence[Path]) -> Iterator[Header | None]:
    """Yield the header of each file; None: it has none, or cannot be read, which decoding says. No file is opened twice.

    Raises
    ------
    AnchorageError
        PACKAGE_MISSING: there are files whose decoder needs a package that is not installed.
    """
    asked = _asked.get()
    for file in files:
        try:
            status = file.stat()
        except OSError:
            yield None
            continue
        state = FileState(str(file), status.st_size, status.st_mtime_ns)
        if state not in _known:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[state] = _header(state)
        if asked is not None:
            asked[state] = _known[state]
        yield _known[state]


def _header(state: FileState) -> Header | None:
    """Return the header of a file."""
    if state.nbytes > MOST_BYTES:
        return None
    try:
        with open_regular(state.path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn with values of headers
            version = decoder_for(file.read(HEAD_BYTES), Path(state.path).name)
            if version is None:
                return None
            file.seek(0)
            return decoders()[version].header(file)
    except (OSError, RefusedImageError):
        return None

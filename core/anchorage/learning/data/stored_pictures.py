"""Pictures in a file: decoded once at a model's size, and read a batch at a time.

A file holds the pictures one after another, then an index (JSON), then its length, its digest and a mark. It is written once and never changed.
Pictures are read by position and not mapped: what is read of a mapped file counts as this process's memory for as long as there is room, and
a damaged disk ends a process that maps it without a word.
"""

import json
import math
import os
import sys
import weakref
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.silo import STATE_UNUSABLE
from anchorage.api.regular_files import regular_opener
from anchorage.learning.data.decoding import with_levels_of

_MARK = b"anchorage pictures 4\n"
_TAIL = 8 + 32 + len(_MARK)
"""Bytes behind the index: its length, its BLAKE3 digest, the mark."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a stored picture."""

    path: str
    """Its file."""
    nbytes: int
    """Size of the file, bytes."""
    modified: int
    """When the file was last changed, nanoseconds."""
    digest: bytes
    """BLAKE2b of the file's bytes."""
    size: tuple[int, int]
    """Width and height in the file."""
    mode: str
    """Name of the pixel format in the file."""
    white: int | None
    """Value that became white; None where a pixel has no more than 8 bits, or has colour."""
    paged: bool
    """Whether the file holds more pages or frames, which are not read."""
    decoder: str
    """What decoded it, with its version."""
    few_values: bool
    """Whether it has as few different pixels as masks have."""
    above: float
    """Share of the pixels in the file that were above `white`."""
    facts: tuple[str, ...]
    """What a site's report counts of the file."""


class StoredPictures:
    """Some pictures of a file, uint8 or uint16 [n, channels, H, W]; they are in memory only while they are worked on.

    Parameters
    ----------
    file : PictureFile
        The file.
    rows : ndarray of int64, shape [n]
        Which of its pictures, in which order.
    """

    def __init__(self, file: "PictureFile", rows: NDArray[np.int64]) -> None:
        self._file, self._rows = file, rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of pictures, channels, height and width."""
        return (len(self._rows), *self._file.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all pictures together."""
        return int(math.prod(self.shape) * self._file.dtype.itemsize)

    @property
    def digests(self) -> NDArray[np.uint8]:
        """Digests of the files that were decoded, uint8 [n, 64]."""
        every = b"".join(self._file.entries[row].digest for row in self._rows)
        return np.frombuffer(every, np.uint8).reshape(len(self._rows), -1)

    def __getitem__(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Self:
        """Return some of these pictures, still unread."""
        return type(self)(self._file, self._rows[rows])

    def read(self, rows: NDArray[np.integer] | slice) -> NDArray[Any]:
        """Read some of these pictures, uint8 or uint16 [b, channels, H, W].

        Raises
        ------
        AnchorageError
            STATE_UNUSABLE: they cannot be read, or are not as they were written; then the file is removed.
        """
        wanted = self._rows[rows].tolist()
        pictures = np.empty((len(wanted), *self._file.shape), self._file.dtype)
        for picture, row in zip(pictures, wanted, strict=True):
            self._file.read_into(row, picture)
        return pictures


class Stored(Protocol):
    """Images that are in memory only while they are worked on, [n, channels, ...]; as `StoredPictures`."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of images, channels and sides."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all images together."""
        ...

    @property
    def digests(self) -> NDArray[np.uint8]:
        """Digests of the files that were decoded, uint8 [n, 64]."""
        ...

    def __getitem__(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Self:
        """Return some of them, still unread."""
        ...

    def read(self, rows: NDArray[np.integer] | slice) -> NDArray[Any]:
        """Read some of them, uint8 or uint16 [b, channels, ...]; errors as of `StoredPictures.read`."""
        ...


Pictures = NDArray[np.uint8] | NDArray[np.uint16] | Stored
"""Pictures in memory, or in a file, [n, channels, H, W]: uint8, or uint16 where any of them has more than 256 levels; 255 or 65535 is white."""


class PictureFile:
    """An open file of pictures; it can be read to its end even after it was removed or replaced.

    Raises
    ------
    OSError, ValueError
        There is no such file, or it is not whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = regular_opener(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._handle)
        index = self._read_index()
        self.shape: tuple[int, int, int] = tuple(index["shape"])
        """Channels, height and width of each picture."""
        self.dtype = np.dtype(index["dtype"])
        """uint8 or uint16."""
        self._picture_bytes = int(np.prod(self.shape)) * self.dtype.itemsize
        self.entries = tuple(_entries(index))
        """What is known of each picture."""
        self._checks = np.array(index["checks"], np.uint64)
        self._verified = np.zeros(len(self.entries), np.bool_)
        if len(self._checks) != len(self.entries) or self._start != self._picture_bytes * len(self.entries):
            raise ValueError("it has another number of pictures than its index says")

    def _read_index(self) -> dict[str, Any]:
        file_bytes = os.fstat(self._handle).st_size
        tail = os.pread(self._handle, _TAIL, max(0, file_bytes - _TAIL))
        length = int.from_bytes(tail[:8], "little")
        self._start = file_bytes - _TAIL - length
        if not tail.endswith(_MARK) or len(tail) != _TAIL or self._start < 0:
            raise ValueError("it has no end")
        content = os.pread(self._handle, length, self._start)
        if blake3(content).digest() != tail[8:40]:
            raise ValueError("its index is damaged")
        index: dict[str, Any] = json.loads(content)
        return index

    def read_into(self, row: int, picture: NDArray[Any]) -> None:
        """Read one picture; its digest is compared when it is read for the first time.

        Raises
        ------
        AnchorageError
            As `StoredPictures.read`.
        """
        try:
            count = os.preadv(self._handle, [picture.data], row * self._picture_bytes)
        except OSError as error:
            raise self._damage_error(error.strerror or str(error)) from error
        if count != self._picture_bytes or not (self._verified[row] or check_of(picture) == self._checks[row]):
            raise self._damage_error(f"picture {row} is not as it was written")
        self._verified[row] = True

    def _damage_error(self, what: str) -> AnchorageError:
        self._path.unlink(missing_ok=True)
        return AnchorageError(
            STATE_UNUSABLE, f"{self._path}: {what}; it was removed: start again, and the images are decoded anew"
        )


class PictureWriter:
    """Writes a file of pictures, with mode 0600; use it as a context manager.

    Parameters
    ----------
    path : Path
        The file; what it held is lost.
    shape : tuple of int
        Channels, height and width of each picture.
    dtype : dtype
        uint8 or uint16.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int], dtype: np.dtype[Any]) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(handle, "wb")
        self._shape, self._checks = shape, list[int]()
        self.dtype = dtype
        """Of the pictures."""
        self.entries = list[Entry]()
        """What was written so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def deepen(self) -> None:
        """Give the pictures that were written so far 65,536 levels, so that others of as many can follow.

        Raises
        ------
        OSError
            As `append`.
        """
        self._file.flush()
        handle, deeper = self._file.fileno(), np.dtype(np.uint16)
        for row in reversed(range(len(self.entries))):  # from behind, so that none is overwritten before it is read
            picture = np.empty(self._shape, self.dtype)
            os.preadv(handle, [picture.data], row * picture.nbytes)
            stored = with_levels_of(picture, deeper)
            os.pwritev(handle, [stored.data], row * stored.nbytes)
            self._checks[row] = check_of(stored)
        self.dtype = deeper
        self._file.seek(0, os.SEEK_END)

    def append(self, picture: NDArray[Any], entry: Entry) -> None:
        """Write one picture, uint8 or uint16 [channels, H, W], with the file's levels.

        Raises
        ------
        OSError
            The disk is full, or cannot be written.
        """
        stored = np.ascontiguousarray(with_levels_of(picture, self.dtype))
        self._file.write(stored.data)
        self._checks.append(check_of(stored))
        self.entries.append(entry)

    def finish(self) -> None:
        """Write the index; the file is whole then.

        Raises
        ------
        OSError
            As `append`.
        """
        rows = [astuple(entry) for entry in self.entries]
        columns: dict[str, Any] = {field.name: [row[i] for row in rows] for i, field in enumerate(fields(Entry))}
        columns["digest"] = [digest.hex() for digest in columns["digest"]]
        content = json.dumps(
            {"shape": self._shape, "dtype": self.dtype.name, "checks": self._checks, **columns}
        ).encode()
        self._file.write(content + len(content).to_bytes(8, "little") + blake3(content).digest() + _MARK)
        self._file.flush()


def check_of(picture: NDArray[Any]) -> int:
    """Return 8 bytes of BLAKE3 of a picture."""
    return int.from_bytes(blake3(np.ascontiguousarray(picture).view(np.uint8).data).digest(8), "little")


def _entries(index: dict[str, Any]) -> Iterator[Entry]:
    columns = [index[field.name] for field in fields(Entry)]
    for path, nbytes, modified, digest, size, mode, white, paged, decoder, *others, facts in zip(*columns, strict=True):
        # texts that most pictures share are held once
        rest = (sys.intern(mode), white, paged, sys.intern(decoder), *others, tuple(facts))
        yield Entry(path, nbytes, modified, bytes.fromhex(digest), tuple(size), *rest)

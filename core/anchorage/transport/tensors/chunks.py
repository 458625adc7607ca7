"""Content-addressed chunks: how the bytes of a model are named, offered and received."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import xxhash
from blake3 import blake3
from numpy.typing import NDArray

CHUNK_BYTES = 1 << 20
"""Bytes per chunk (the last one may be shorter)."""


def chunk_digest(data: bytes | memoryview) -> bytes:
    """Return a chunk's digest: XXH3, 128 bits.

    It finds accidents: a wrong disk, a cut, a mix-up. Against attackers stands TLS, and a manifest only ever describes its sender's own
    bytes. A cryptographic digest of every copy would cost a tenth of a whole round (docs/benchmarks.md).
    """
    return xxhash.xxh3_128_digest(data)


@dataclass(frozen=True)
class Manifest:
    """Names the bytes of one flat buffer."""

    layout: str
    """Digest of the layout that gives the bytes their meaning, hex."""
    nbytes: int
    """Length of the buffer in bytes."""
    digests: tuple[bytes, ...]
    """`chunk_digest` of each chunk of `CHUNK_BYTES`, 16 bytes each, in order."""
    front: int = 0
    """Bytes at the start that are the same in every model of the run, the frozen tensors; chunks begin anew behind them."""

    @classmethod
    def of(cls, layout: str, buffer: NDArray[np.uint8]) -> "Manifest":
        """Name the bytes of a flat buffer (uint8, shape [nbytes]); `layout` is the layout's digest."""
        return cls(layout, buffer.nbytes, chunk_digests(buffer))

    @cached_property
    def digest(self) -> str:
        """Content address of the buffer, hex: BLAKE3 over layout, length, front where there is one, and chunk digests."""
        head = f"{self.layout}:{self.nbytes}:{f'{self.front}:' if self.front else ''}".encode()
        return blake3(head + b"".join(self.digests)).hexdigest()

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return chunk_count(self.nbytes, self.front)

    @property
    def fixed(self) -> tuple[bytes, ...]:
        """Digests of the front's chunks."""
        return self.digests[: -(-self.front // CHUNK_BYTES)]

    def span(self, index: int) -> tuple[int, int]:
        """Return the first byte and the byte after the last of a chunk."""
        ahead = -(-self.front // CHUNK_BYTES)
        start, end = (index * CHUNK_BYTES, self.front)
        if index >= ahead:
            start, end = self.front + (index - ahead) * CHUNK_BYTES, self.nbytes
        return start, min(start + CHUNK_BYTES, end)

    def locate(self, at: int) -> tuple[int, int]:
        """Return the chunk that a byte is in, and where in it."""
        if at < self.front:
            return divmod(at, CHUNK_BYTES)
        index, offset = divmod(at - self.front, CHUNK_BYTES)
        return index - (-self.front // CHUNK_BYTES), offset


class LateManifest(Manifest):
    """Names bytes of this process, and hashes them when somebody asks first: where nothing travels nobody does.

    Parameters
    ----------
    layout : str
        As in `Manifest`.
    buffer : ndarray of uint8, shape [nbytes]
        Stays as it is for as long as anybody may ask.
    """

    def __init__(self, layout: str, buffer: NDArray[np.uint8]) -> None:
        vars(self).update(layout=layout, nbytes=buffer.nbytes, _buffer=buffer, front=0)

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """`chunk_digest` of each chunk."""
        return chunk_digests(vars(self)["_buffer"])

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Manifest) and _identity(self) == _identity(other))

    __hash__ = Manifest.__hash__

    def __reduce__(self) -> tuple[type[Manifest], tuple[str, int, tuple[bytes, ...], int]]:
        """Travel without the bytes."""
        return Manifest, _identity(self)


def _identity(manifest: Manifest) -> tuple[str, int, tuple[bytes, ...], int]:
    return manifest.layout, manifest.nbytes, manifest.digests, manifest.front


def chunk_count(nbytes: int, front: int = 0) -> int:
    """Return how many chunks so many bytes have, `front` of them before the others."""
    return -(-front // CHUNK_BYTES) - (-(nbytes - front) // CHUNK_BYTES)


def spans(nbytes: int, front: int = 0) -> list[tuple[int, int]]:
    """Return the first byte and the byte after the last of every chunk of so many bytes; chunks begin anew behind `front` of them."""
    parts = ((0, front), (front, nbytes))
    return [(at, min(at + CHUNK_BYTES, end)) for start, end in parts for at in range(start, end, CHUNK_BYTES)]


def chunk_digests(buffer: NDArray[np.uint8], front: int = 0) -> tuple[bytes, ...]:
    """Return `chunk_digest` of every chunk of a flat buffer (uint8, shape [nbytes])."""
    flat = buffer.data
    return tuple(chunk_digest(flat[start:stop]) for start, stop in spans(len(flat), front))


class ChunkSource(Protocol):
    """Bytes that can be read chunk by chunk, by several threads at once."""

    @property
    def manifest(self) -> Manifest:
        """What the bytes are."""

    def chunk(self, index: int) -> bytes:
        """Return one chunk."""


class ChunkSink(Protocol):
    """A place that receives the chunks of one manifest, in any order, any of them more than once."""

    @property
    def manifest(self) -> Manifest:
        """What is being received."""

    def missing(self) -> tuple[int, ...]:
        """Return the indices that have not arrived, ascending."""

    def write(self, index: int, data: bytes) -> None:
        """Check one chunk against its digest and keep it.

        Raises
        ------
        AnchorageError
            The bytes are not the ones that the manifest names.
        """

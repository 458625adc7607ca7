"""Which bytes of a chunk hold numbers that can be averaged."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import ITEM_BYTES, Layout

T = TypeVar("T")

_WORKERS = 2
"""Threads of one aggregation; more find the memory busy (docs/benchmarks.md)."""

_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_NUMBERS = {**_FLOATS, "I64": "<i8"}


@dataclass(frozen=True, slots=True)
class Region:
    """Neighbouring tensors of one dtype within one chunk: bytes `start` to `stop` of the chunk, `count` numbers."""

    start: int
    stop: int
    dtype: str

    @property
    def count(self) -> int:
        """How many numbers."""
        return (self.stop - self.start) // ITEM_BYTES[self.dtype]

    def read(self, chunk: bytes) -> NDArray[Any]:
        """Return the numbers, shape [count], as float16, float32, float64 or int64: a view, except that bfloat16 is widened to float32."""
        stored = np.frombuffer(chunk, _NUMBERS[self.dtype], self.count, self.start)
        return (stored.astype("<u4") << np.uint32(16)).view("<f4") if self.dtype == "BF16" else stored

    def encode(self, values: NDArray[np.float64]) -> bytes:
        """Round numbers of shape [count] to the region's dtype, to nearest even (bfloat16 by way of float32)."""
        if self.dtype != "BF16":
            return values.astype(_FLOATS[self.dtype]).tobytes()
        bits = values.astype("<f4").view("<u4")
        return (
            ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
            .astype("<u2")
            .tobytes()
        )


def float_regions(layout: Layout, *, counters: bool = False) -> list[list[Region]]:
    """Return the regions of every chunk, in order; a number never crosses a chunk's edge.

    The bytes between them are integers and booleans, which are not averaged (methods reference, section 1, "Aggregation", rule 4); with `counters`,
    those of 64-bit integers are returned, too.
    """
    kinds = _NUMBERS if counters else _FLOATS
    chunks: list[list[Region]] = [[] for _ in range(-(-layout.nbytes // CHUNK_BYTES))]
    for entry in layout.tensors:
        start, end = entry.offset, entry.offset + entry.nbytes
        while start < end and entry.dtype in kinds:
            index, first = divmod(start, CHUNK_BYTES)
            last = min(first + end - start, CHUNK_BYTES)
            start += last - first
            regions = chunks[index]
            if regions and regions[-1].stop == first and regions[-1].dtype == entry.dtype:
                first = regions.pop().start
            regions.append(Region(first, last, entry.dtype))
    return chunks


def assemble(regions: Sequence[Region], encoded: Sequence[bytes], template: bytes) -> bytes:
    """Return a chunk with the regions' bytes from `encoded` and all others from `template`."""
    pieces, end = [], 0
    for region, data in zip(regions, encoded, strict=True):
        if region.start > end:
            pieces.append(template[end : region.start])
        pieces.append(data)
        end = region.stop
    if len(template) > end:
        pieces.append(template[end:])
    return b"".join(pieces)


def for_each_chunk(work: Callable[[int], T], count: int) -> list[T]:
    """Return `work` of every chunk's index, in order, worked on by a few threads."""
    if count < 2:
        return [work(index) for index in range(count)]
    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(work, range(count)))

"""The weighted mean of updates in one pass: every chunk is read once, added in float64, and hashed while it is in the cache."""

import math
import threading
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors.catalogue import Failure
from anchorage.api.errors.rounds import NON_FINITE_UPDATE
from anchorage.engine.aggregation.regions import Region, assemble, float_regions, for_each_chunk
from anchorage.transport.tensors.chunks import CHUNK_BYTES, ChunkSource, Manifest, chunk_digest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

_BLOCK = 262144
"""Numbers that are added at a time: a chunk of float32. Smaller blocks fit the cache better, but threads then wait for each other more."""
_GROUP = 8
"""Sources whose chunk is held at a time: bounds memory whatever the number of silos."""


class UnusableUpdate(ValueError):  # noqa: N818  (as the one below)
    """An update cannot be used; its silo is taken out, and the others are aggregated.

    Parameters
    ----------
    index : int
        Which of the sources.
    failure : Failure
        The catalogue's name for it.
    detail : str
        What is wrong.
    """

    def __init__(self, index: int, failure: Failure, detail: str) -> None:
        self.index, self.failure, self.detail = index, failure, detail
        super().__init__(f"update {index}: {detail}")


class NonFiniteUpdate(UnusableUpdate):
    """An update holds NaN or infinite numbers.

    Parameters
    ----------
    index : int
        Which of the sources.
    tensor : str
        Name of the first such tensor.
    """

    def __init__(self, index: int, tensor: str) -> None:
        self.tensor = tensor
        super().__init__(index, NON_FINITE_UPDATE, f"tensor {tensor} is not finite")


def weighted_mean(sources: Sequence[ChunkSource], weights: Sequence[float], layout: Layout) -> ModelBytes:
    """Average updates: the sum of weight times update, over the sum of the weights (methods reference, section 1, "Aggregation").

    The sums are float64 and run in the order of the sources, so the result has the same bits on every machine. Integers and booleans are
    those of the first source that has a weight. Takes one model and a few chunks of memory, however many sources there are.

    Parameters
    ----------
    sources : sequence of ChunkSource
        Whole updates. One that weighs nothing is not read.
    weights : sequence of float
        One per source: finite, not negative, not all zero.
    layout : Layout
        Layout of every source and of the result.

    Raises
    ------
    NonFiniteUpdate
        A source with a weight holds a number that is not finite.
    ValueError
        A weight is negative or not finite, all are zero, or a source has another layout.
    """
    _check(sources, weights, layout)
    total = math.fsum(weights)
    parts = [(source, weight / total) for source, weight in zip(sources, weights, strict=True) if weight > 0]
    regions = float_regions(layout)
    averaged = for_each_chunk(lambda index: _average_chunk(parts, regions[index], index), len(regions))
    if not all(finite for _, _, finite in averaged):
        for index, (source, weight) in enumerate(zip(sources, weights, strict=True)):
            if weight > 0 and (tensor := find_nonfinite(source, layout)) is not None:
                raise NonFiniteUpdate(index, tensor)
    return ModelBytes(layout, (data for data, _, _ in averaged), (digest for _, digest, _ in averaged))


class MeanSource:
    """The mean of updates as `weighted_mean` has it, averaged again whenever a chunk is read (`ChunkSource`); no update is held.

    Parameters
    ----------
    sources, weights, layout
        As of `weighted_mean`; the sources must stay readable. Numbers that are not finite stay.

    Raises
    ------
    ValueError
        As `weighted_mean`.
    """

    def __init__(self, sources: Sequence[ChunkSource], weights: Sequence[float], layout: Layout) -> None:
        _check(sources, weights, layout)
        total = math.fsum(weights)
        self._parts = [(source, weight / total) for source, weight in zip(sources, weights, strict=True) if weight > 0]
        self._regions = float_regions(layout)
        digests = tuple(chunk_digest(self.chunk(index)) for index in range(len(self._regions)))
        self.manifest = Manifest(layout.digest, layout.nbytes, digests)

    def chunk(self, index: int) -> bytes:
        """Return one chunk."""
        return _average_chunk(self._parts, self._regions[index], index)[0]


def find_nonfinite(source: ChunkSource, layout: Layout) -> str | None:
    """Return the name of the first tensor that holds NaN or an infinite number, None where all are finite."""
    for index, regions in enumerate(float_regions(layout)):
        data = source.chunk(index) if regions else b""
        for region in regions:
            finite = np.isfinite(region.read(data))
            if not finite.all():
                item_bytes = (region.stop - region.start) // region.count
                position = index * CHUNK_BYTES + region.start + int(finite.argmin()) * item_bytes
                return next(t.name for t in layout.tensors if t.offset <= position < t.offset + t.nbytes)
    return None


def add_weighted(sums: NDArray[np.float64], values: Sequence[NDArray[Any]], weights: Sequence[float]) -> None:
    """Add weight times value to `sums` for each of several arrays of shape [n], block by block, one after the other."""
    product = _scratch().product
    for start in range(0, len(sums), _BLOCK):
        block = sums[start : start + _BLOCK]
        term = product[: len(block)]
        for value, weight in zip(values, weights, strict=True):
            np.copyto(term, value[start : start + _BLOCK])
            np.multiply(term, weight, out=term)
            np.add(block, term, out=block)


class _Scratch(threading.local):
    """A thread's working memory, used again for every chunk: fresh memory would cost more than the sums."""

    def __init__(self) -> None:
        self.product = np.empty(_BLOCK)
        self.sums = np.empty(CHUNK_BYTES // 2)  # a chunk holds at most so many numbers (of 16 bits)


@cache
def _scratch() -> _Scratch:
    return _Scratch()


def _check(sources: Sequence[ChunkSource], weights: Sequence[float], layout: Layout) -> None:
    for index, (source, weight) in enumerate(zip(sources, weights, strict=True)):
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"the weight of update {index} is {weight}")
        if source.manifest.layout != layout.digest:
            raise ValueError(f"update {index} has another layout")
    if not any(weight > 0 for weight in weights):
        raise ValueError("no update has a weight")


def _average_chunk(
    parts: Sequence[tuple[ChunkSource, float]], regions: Sequence[Region], index: int
) -> tuple[bytes, bytes, bool]:
    """Average one chunk: its bytes, their digest, and whether every sum is finite."""
    edges = [0, *accumulate(region.count for region in regions)]
    memory = _scratch().sums[: edges[-1]]
    memory.fill(0.0)
    sums = [memory[start:stop] for start, stop in pairwise(edges)]
    template = b""
    with np.errstate(all="ignore"):
        for first in range(0, len(parts), _GROUP):
            group = parts[first : first + _GROUP]
            chunks = [source.chunk(index) for source, _ in group]
            template = template or chunks[0]
            for region, total in zip(regions, sums, strict=True):
                add_weighted(total, [region.read(chunk) for chunk in chunks], [weight for _, weight in group])
        finite = all(math.isfinite(total.sum()) or bool(np.isfinite(total).all()) for total in sums)
        encoded = [region.encode(total) for region, total in zip(regions, sums, strict=True)]
    data = assemble(regions, encoded, template)
    return data, chunk_digest(data), finite

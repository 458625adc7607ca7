"""Aggregations that look at every coordinate over all updates, such as medians and trimmed means."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.aggregation.mean import NonFiniteUpdate, find_nonfinite
from anchorage.engine.aggregation.regions import Region, assemble, float_regions, for_each_chunk
from anchorage.transport.tensors.chunks import ChunkSource, chunk_digest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

Combine = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""From the values of some coordinates, shape [updates, n], to the aggregated ones, shape [n]."""

HELD = 1 << 22
"""Numbers of all updates that are held at a time: 32 MiB, whatever the number of silos; with more than 16 chunks are read again."""


def by_coordinate(updates: Sequence[ChunkSource], layout: Layout, combine: Combine) -> ModelBytes:
    """Aggregate coordinate by coordinate, in memory that does not grow with the number of updates. Integers are those of the first update.

    Parameters
    ----------
    updates : sequence of ChunkSource
        Whole updates in `layout`, at least one.
    layout : Layout
        Of every update and of the result.
    combine : callable
        Makes one value of all updates' values of a coordinate.

    Raises
    ------
    NonFiniteUpdate
        An update holds a number that is not finite.
    """
    check_finite(updates, layout)
    regions = float_regions(layout)

    def combine_chunk(index: int) -> tuple[bytes, bytes]:
        encoded = [
            region.encode(np.concatenate([combine(values) for values in stack_sources(updates, region, index)]))
            for region in regions[index]
        ]
        data = assemble(regions[index], encoded, updates[0].chunk(index))
        return data, chunk_digest(data)

    done = for_each_chunk(combine_chunk, len(regions))
    return ModelBytes(layout, (data for data, _ in done), (digest for _, digest in done))


def stack_sources(sources: Sequence[ChunkSource], region: Region, index: int) -> Iterator[NDArray[np.float64]]:
    """Yield the numbers of a chunk's region, of all sources side by side: float64, shape [sources, n], `HELD` of them at most."""
    step = max(1, HELD // len(sources))
    for start in range(0, region.count, step):
        values = np.empty((len(sources), min(step, region.count - start)))
        for row, source in zip(values, sources, strict=True):
            row[:] = region.read(source.chunk(index))[start : start + step]
        yield values


def check_finite(updates: Sequence[ChunkSource], layout: Layout) -> None:
    """Check that all numbers are finite.

    Raises
    ------
    NonFiniteUpdate
        An update holds one that is not.
    """
    for index, update in enumerate(updates):
        if (tensor := find_nonfinite(update, layout)) is not None:
            raise NonFiniteUpdate(index, tensor)

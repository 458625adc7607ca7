"""Aggregations that look at every coordinate over all updates, such as medians and trimmed means."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.aggregation.mean import NonFiniteUpdate, find_nonfinite
from anchorage.engine.aggregation.regions import assemble, float_regions, for_each_chunk
from anchorage.transport.tensors.chunks import ChunkSource, chunk_digest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

Combine = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""From the values of some coordinates, shape [updates, n], to the aggregated ones, shape [n]."""


def by_coordinate(updates: Sequence[ChunkSource], layout: Layout, combine: Combine) -> ModelBytes:
    """Aggregate coordinate by coordinate; one chunk of every update is in memory at a time. Integers are those of the first update.

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
    for index, update in enumerate(updates):
        if (tensor := find_nonfinite(update, layout)) is not None:
            raise NonFiniteUpdate(index, tensor)
    regions = float_regions(layout)

    def combined(index: int) -> tuple[bytes, bytes]:
        chunks = [update.chunk(index) for update in updates]
        encoded = [
            region.encode(combine(np.stack([region.read(chunk).astype(np.float64) for chunk in chunks])))
            for region in regions[index]
        ]
        data = assemble(regions[index], encoded, chunks[0])
        return data, chunk_digest(data)

    done = for_each_chunk(combined, len(regions))
    return ModelBytes(layout, (data for data, _ in done), (digest for _, digest in done))

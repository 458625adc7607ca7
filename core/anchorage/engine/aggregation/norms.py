"""How long updates are: what silos train apart from what is counted or travels beside it, so that neither hides the other."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import isfinite, sqrt
from statistics import median
from typing import NamedTuple

import numpy as np

from anchorage.engine.aggregation.mean import NonFiniteUpdate, find_nonfinite
from anchorage.engine.aggregation.regions import Region, float_regions, for_each_chunk
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import AUXILIARY_PREFIXES, BUFFERS, Layout, TensorEntry


class Norms(NamedTuple):
    """Euclidean norms of one update, or of its difference from a model."""

    trained: float
    """Of the network's weights."""
    other: float
    """Of running statistics, and of what is no part of the network."""


MOST = Norms(10.0, 100.0)
"""So many times the median of the others may an update be long. All begin at one model: honest ones stay far below, however long they train."""
FEWEST = 3
"""Updates of which a median says something: one that is far off is not the one in the middle."""


def norms(source: ChunkSource, layout: Layout, origin: ChunkSource | None = None) -> Norms:
    """Return how long an update is, or how far it is from `origin`, in one pass over its chunks.

    Parameters
    ----------
    source : ChunkSource
        A whole update in `layout`.
    layout : Layout
        Of both.
    origin : ChunkSource, optional
        What is subtracted.

    Raises
    ------
    NonFiniteUpdate
        The update holds a number that is not finite; its index is 0.
    """
    chunks = _regions(layout)

    def squares(index: int) -> Norms:
        chunk = source.chunk(index)
        before = None if origin is None else origin.chunk(index)
        with np.errstate(over="ignore", invalid="ignore"):
            return Norms(*(sum(_square(region, chunk, before) for region in group) for group in chunks[index]))

    sums = [sum(group) for group in zip(Norms(0.0, 0.0), *for_each_chunk(squares, len(chunks)), strict=True)]
    if not all(map(isfinite, sums)) and (tensor := find_nonfinite(source, layout)) is not None:
        raise NonFiniteUpdate(0, tensor)
    return Norms(*map(sqrt, sums))


def norms_of(updates: Sequence[ChunkSource], layout: Layout, origin: ChunkSource | None = None) -> list[Norms]:
    """Return the norms of several updates; see `norms`.

    Raises
    ------
    NonFiniteUpdate
        An update holds a number that is not finite; its index is that of `updates`.
    """
    norms_of_updates = []
    for index, update in enumerate(updates):
        try:
            norms_of_updates.append(norms(update, layout, origin))
        except NonFiniteUpdate as error:
            raise NonFiniteUpdate(index, error.tensor) from error
    return norms_of_updates


def outliers(norms_of_updates: Sequence[Norms]) -> Mapping[int, str]:
    """Return what is wrong with the updates that are longer than `MOST` times the median of all, by their positions; none where there are few."""
    messages: dict[int, str] = {}
    if len(norms_of_updates) < FEWEST:
        return messages
    for group, most in zip(zip(*norms_of_updates, strict=True), MOST, strict=True):
        middle = median(group)
        for position, norm in enumerate(group):
            if norm > most * middle > 0:
                messages.setdefault(
                    position, f"its norm is {norm:.3g}, the median of {len(norms_of_updates)} updates {middle:.3g}"
                )
    return messages


def _regions(layout: Layout) -> list[tuple[list[Region], list[Region]]]:
    """Return every chunk's regions of the network's weights, and its other regions."""
    apart: tuple[list[TensorEntry], list[TensorEntry]] = ([], [])
    for entry in layout.tensors:
        apart[entry.name.endswith(BUFFERS) or entry.name.startswith(AUXILIARY_PREFIXES)].append(entry)
    trained, other = (float_regions(Layout(tuple(entries))) for entries in apart)
    return list(zip_longest(trained, other, fillvalue=[]))


def _square(region: Region, chunk: bytes, before: bytes | None) -> float:
    """Return the squared norm of a region's numbers, in their own precision where that can hold it."""
    values = region.read(chunk)
    if before is None and values.dtype == np.float32 and isfinite(square := float(np.dot(values, values))):
        return square
    wide = values.astype(np.float64)
    if before is not None:
        wide -= region.read(before)
    return float(np.square(wide, out=wide).sum())

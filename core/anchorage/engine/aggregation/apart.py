"""Tensors that only some silos train, averaged over those alone (methods reference, 6.13, FedCLR)."""

import math
from collections.abc import Sequence

import numpy as np

from anchorage.engine.aggregation.single_tensors import TensorReader, numbers_in, with_tensors
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.model import ModelBytes


def average_apart(
    mean: ModelBytes, sources: Sequence[ChunkSource], weights: Sequence[float], prefix: str
) -> ModelBytes:
    """Replace some tensors of a mean by their own mean, whose weights differ from the others'.

    Parameters
    ----------
    mean : ModelBytes
        The weighted mean of the sources.
    sources : sequence of ChunkSource
        The updates, in the layout of `mean`.
    weights : sequence of float
        One per source, not negative. All zero: the mean stays.
    prefix : str
        Begins the names of the tensors, all floating.
    """
    total = math.fsum(weights)
    if total == 0:
        return mean
    entries = [entry for name, entry in mean.layout.by_name.items() if name.startswith(prefix)]
    sums = [np.zeros(numbers_in(entry)) for entry in entries]
    for source, weight in zip(sources, weights, strict=True):
        if weight > 0:
            read = TensorReader(source)
            for entry, numbers in zip(entries, sums, strict=True):
                numbers += weight / total * read(entry)
    return with_tensors(mean, dict(zip(entries, sums, strict=True)))


def summed_apart(mean: ModelBytes, sources: Sequence[ChunkSource], prefix: str) -> ModelBytes:
    """Replace the tensors of a mean whose names begin with `prefix`, all floating, by their sums over the sources, added in their order."""
    entries = [entry for name, entry in mean.layout.by_name.items() if name.startswith(prefix)]
    sums = [np.zeros(numbers_in(entry)) for entry in entries]
    for source in sources:
        read = TensorReader(source)
        for entry, numbers in zip(entries, sums, strict=True):
            numbers += read(entry)
    return with_tensors(mean, dict(zip(entries, sums, strict=True)))

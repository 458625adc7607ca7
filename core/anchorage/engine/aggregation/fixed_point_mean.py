"""The mean of fixed-point updates in one pass: every chunk is added up, unmasked, turned into numbers and hashed while it is in the cache."""

import math
from collections.abc import Sequence

import numpy as np

from anchorage.engine.aggregation.regions import assemble, float_regions, for_each_chunk
from anchorage.transport.secure_aggregation.fixed_point import largest_sum
from anchorage.transport.secure_aggregation.masks import Mask, add_masks
from anchorage.transport.tensors.chunks import CHUNK_BYTES, ChunkSource, chunk_digest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


class ImpossibleSumError(ValueError):
    """A sum is none of updates."""


def fixed_point_mean(
    updates: Sequence[ChunkSource], masks: Sequence[Mask], layout: Layout, model: ModelBytes, scale: float, bits: int
) -> ModelBytes:
    """Return the model plus the mean change, in `layout`; integers and booleans are the model's.

    The sum is exact, modulo 2^32. Takes one model and a few chunks of memory, however many updates there are.

    Parameters
    ----------
    updates : sequence of ChunkSource
        What silos sent, as `fixed_point.encode` writes it, masked or not.
    masks : sequence of Mask
        What takes the masks off their sum.
    layout : Layout
        Of an update; its floats are float32.
    model : ModelBytes
        The model that the silos received; has every tensor of `layout`.
    scale : float
        By which the sum is multiplied: one over the sum of the shares in it.
    bits : int
        Fractional bits.

    Raises
    ------
    ImpossibleSumError
        A number of the sum is larger than the updates' can be together: masks are still on it, or an update was no such numbers.
    """
    before = model if model.layout == layout else ModelBytes.from_arrays(layout, model.arrays())
    regions, factor, most = float_regions(layout), math.ldexp(scale, -bits), largest_sum(1 / scale, len(updates))

    def average(index: int) -> tuple[bytes, bytes]:
        old = before.chunk(index)
        words = np.zeros(len(old) // 4, np.uint32)
        for update in updates:
            words += np.frombuffer(update.chunk(index), "<u4", len(words))
        add_masks(words, masks, index * CHUNK_BYTES // 4)
        floats = [region for region in regions[index] if region.dtype == "F32"]
        sums = [words[region.start // 4 : region.stop // 4].view(np.int32) for region in floats]
        if any(each.size and (each.max() > most or each.min() < -most) for each in sums):
            raise ImpossibleSumError
        changes = [each * factor for each in sums]
        encoded = [region.encode(region.read(old) + change) for region, change in zip(floats, changes, strict=True)]
        data = assemble(floats, encoded, old)
        return data, chunk_digest(data)

    averaged = for_each_chunk(average, len(regions))
    return ModelBytes(layout, (data for data, _ in averaged), (digest for _, digest in averaged))

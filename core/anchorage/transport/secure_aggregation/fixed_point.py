"""Updates as fixed-point numbers modulo 2^32: their sum is exact, so it is the same with masks and without."""

import math

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.secure_aggregation.masks import Words
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import read_arrays

LARGEST_WORD = 2**30
"""Largest sum of all silos' numbers, but for roundings: half of what a word holds, so that masks that stay on show in every second word."""
_BLOCK = 1 << 16


class RangeError(ValueError):
    """A change cannot be written as a fixed-point number."""


def words_of(layout: Layout) -> int:
    """Return how many words an update has.

    Raises
    ------
    RangeError
        A tensor is of floats that are not float32.
    """
    for tensor in layout.tensors:
        if tensor.dtype in ("F64", "F16", "BF16"):
            raise RangeError(f"tensor {tensor.name} is {tensor.dtype}, not F32")
    return layout.nbytes // 4


def largest_sum(share: float, silos: int) -> int:
    """Return the largest word that the sum of so many silos' updates can have, as `encode` writes them; `share` is that of all of them."""
    return math.ceil(share * LARGEST_WORD + silos / 2)


def encode(
    up: Layout, update: NDArray[np.uint8], before: NDArray[np.uint8], down: Layout, share: float, bits: int
) -> Words:
    """Replace an update, in place, by its change times its share of the sum; return the words, a view of `update`.

    Integers become 0: those of the global model stay.

    Parameters
    ----------
    up, down : Layout
        Of update and model.
    update, before : ndarray of uint8, shape [nbytes]
        The update, and the model that was received.
    share : float
        From 0 to 1; those of all silos together are 1 at most.
    bits : int
        Fractional bits.

    Raises
    ------
    RangeError
        A change is not finite, or does not fit; then nothing may leave.
    """
    words_of(up)
    step, most = math.ldexp(share, bits), LARGEST_WORD / 2**bits
    old, scratch = read_arrays(down, before), np.empty(_BLOCK)
    for name, array in read_arrays(up, update).items():
        if up.by_name[name].dtype != "F32":
            array[...] = 0
            continue
        new, start = array.reshape(-1), old[name].reshape(-1)
        for first in range(0, len(new), _BLOCK):
            part = new[first : first + _BLOCK]
            change = np.subtract(part, start[first : first + _BLOCK], out=scratch[: len(part)], dtype=np.float64)
            if not (change.max() <= most and change.min() >= -most):
                raise RangeError(f"tensor {name} changes by more than {most:.6g} or is not finite")
            change *= step
            np.copyto(part.view(np.int32), np.rint(change, out=change), casting="unsafe")  # it fits
    return update[: 4 * (update.nbytes // 4)].view("<u4")

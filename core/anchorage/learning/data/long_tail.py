"""Long-tailed pools: the exponential class profile of CIFAR-10-LT and CIFAR-100-LT (Cao et al., LDAM, 2019, section 4)."""

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import PARTITION_IMPOSSIBLE

Rows = NDArray[np.int64]

_ROUNDING = 1e-9
"""A count of 4.999999999 is 5."""


def long_tailed_rows(labels: NDArray[np.int64], classes: int, factor: int, rng: np.random.Generator) -> Rows:
    """Draw images so that class sizes fall exponentially: ``n_c = n_max * factor^(-c / (C - 1))``, rounded down.

    Classes are taken in the federation's order, the first the most frequent. ``n_max`` is the largest number that every class has the images for:
    of classes of equal size that size.

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        Class ids of the pool, -1 without a label.
    classes : int
        Number of classes C, at least 2.
    factor : int
        Imbalance factor: size of the first class over that of the last, at least 1.
    rng : Generator
        Draws the images of each class.

    Returns
    -------
    Rows
        Ascending positions in `labels`.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: an image has no label, or a class would have no image.
    """
    if (unlabelled := int((labels < 0).sum())) > 0:
        message = f"found {unlabelled} images without a label, of which no class size can be drawn; leave partition.imbalanceFactor out"
        raise AnchorageError(PARTITION_IMPOSSIBLE, message)
    shares = float(factor) ** (-np.arange(classes) / (classes - 1))
    largest = np.floor((np.bincount(labels, minlength=classes) / shares).min() + _ROUNDING)
    sizes = np.floor(largest * shares + _ROUNDING).astype(np.int64)
    if sizes.min() < 1:
        message = (
            f"a class would have no image: the first of {classes} would have {largest:.0f}, the last 1/{factor} of them"
        )
        raise AnchorageError(PARTITION_IMPOSSIBLE, f"{message}; lower partition.imbalanceFactor or add images")
    drawn = [rng.permutation(np.flatnonzero(labels == c))[:size] for c, size in enumerate(sizes)]
    return np.sort(np.concatenate(drawn))

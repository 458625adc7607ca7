"""How many images each part of a pool gets (methods reference, 4.3)."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-9
"""A share of 49.99999999999999 counts as 50."""


def equal_sizes(total: int, parts: int) -> list[int]:
    """Return sizes that differ by one at most, the larger ones first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def power_law_sizes(total: int, parts: int, exponent: float = 1.5) -> list[int]:
    """Return sizes proportional to rank^-exponent (methods reference, 4.3, KAT X1)."""
    return _proportional(np.arange(1, parts + 1, dtype=np.float64) ** -exponent, total)


def skewed_sizes(total: int, parts: int) -> list[int]:
    """Return sizes proportional to parts + 1 − rank (methods reference, 4.3, KAT X2)."""
    return _proportional(np.arange(parts, 0, -1, dtype=np.float64), total)


SIZES: Mapping[str, Callable[[int, int], list[int]]] = {
    "Uniform": equal_sizes,
    "PowerLaw": power_law_sizes,
    "Skewed": skewed_sizes,
}
"""From the number of images and of parts to the parts' sizes, largest first; by the name in a partition."""


def _proportional(weights: NDArray[np.floating], total: int) -> list[int]:
    """Round shares of a total by largest remainder, the earlier first where remainders are equal."""
    shares = total * weights / weights.sum()
    sizes = np.floor(shares + _ROUNDING).astype(np.int64)
    order = np.argsort(-np.round(shares - sizes, 9), kind="stable")
    sizes[order[: total - sizes.sum()]] += 1
    return [int(size) for size in sizes]

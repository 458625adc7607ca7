"""How one pool of images is divided among silos: at random, or by the three recipes that go by the name Dirichlet (METHODS.md 4.2)."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anchorage.errors import AnchorageError
from anchorage.errors.data import PARTITION_IMPOSSIBLE
from anchorage.spec.data import Partition

Rows = NDArray[np.int64]
"""Positions in the pool, ascending."""

MOST_TRIES = 1000
_ROUNDING = 1e-9
"""A cut of 49.99999999999999 counts as 50 (KAT W1)."""


def divide(partition: Partition, labels: NDArray[np.int64], rng: np.random.Generator) -> tuple[Rows, ...]:
    """Divide a pool by any recipe but File.

    Parameters
    ----------
    partition : Partition
        Recipe and its parameters.
    labels : ndarray of int64, shape [n]
        Class ids; images without a label (-1) count as one class.
    rng : Generator
        Draws the parts.

    Returns
    -------
    tuple of Rows
        One entry per part; every row is in exactly one.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: fewer images than parts, or no draw gave every part `minSize` images.
    """
    parts = partition.parts or 1
    if len(labels) < parts:
        raise AnchorageError(
            PARTITION_IMPOSSIBLE, f"found {len(labels)} images for {parts} parts; lower partition.parts or add images"
        )
    alpha = float(partition.alpha)
    if partition.recipe != "Iid" and alpha == 0:
        raise AnchorageError(PARTITION_IMPOSSIBLE, 'found alpha "0"; a Dirichlet concentration is larger than 0')
    if partition.recipe == "Iid":
        return iid(_SIZES[partition.sizes](len(labels), parts), rng)
    if partition.recipe == "PerClient":
        return per_client(labels, parts, alpha, rng)
    capped = partition.recipe == "PerClassCapped"
    return per_class(labels, parts, alpha, rng, capped=capped, min_size=partition.min_size)


def iid(sizes: Sequence[int], rng: np.random.Generator) -> tuple[Rows, ...]:
    """Deal rows 0 … sum(sizes) − 1 at random into parts of the given sizes."""
    order = rng.permutation(sum(sizes))
    return tuple(np.sort(rows) for rows in np.split(order, np.cumsum(sizes)[:-1]))


def per_client(labels: NDArray[np.int64], parts: int, alpha: float, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Give every part the same number of images and a class mix of its own (recipe D1, "LDA").

    Part by part, ``q ~ Dir(alpha)`` over the classes; classes are drawn from q, and one unused image of each; a class that runs out is
    dropped and q renormalised. Drawing many at once and drawing anew what the supply does not cover has the same distribution.
    """
    pools = [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    taken = np.zeros(len(pools), dtype=np.int64)
    supply = np.array([len(pool) for pool in pools])
    divided = []
    for size in equal_sizes(len(labels), parts):
        mix = rng.dirichlet(np.full(len(pools), alpha))
        wanted = np.zeros(len(pools), dtype=np.int64)
        while (open_places := size - wanted.sum()) > 0:
            left = supply - taken - wanted
            weights = np.where(left > 0, np.nan_to_num(mix), 0.0)
            if weights.sum() <= 0:
                weights = (left > 0).astype(float)
            wanted += np.minimum(rng.multinomial(open_places, weights / weights.sum()), left)
        rows = [pool[start : start + count] for pool, start, count in zip(pools, taken, wanted, strict=True)]
        divided.append(np.sort(np.concatenate(rows)))
        taken += wanted
    return tuple(divided)


def per_class(
    labels: NDArray[np.int64],
    parts: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    capped: bool,
    min_size: int,
) -> tuple[Rows, ...]:
    """Cut every class among the parts by ``p ~ Dir(alpha)`` (recipe D2); capped: a part with n/K images gets no more (recipe D3).

    Draws in the order of KAT W1: per class in ascending order the shuffle of its images, then the shares; all of it again until every
    part has `min_size` images, at most `MOST_TRIES` times.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: no draw gave every part `min_size` images.
    """
    members = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    smallest = 0
    for _ in range(MOST_TRIES):
        pieces: list[list[Rows]] = [[] for _ in range(parts)]
        sizes = np.zeros(parts, dtype=np.int64)
        for rows in members:
            shuffled = rng.permutation(rows)
            shares = rng.dirichlet(np.full(parts, alpha))
            if capped:
                shares = _capped(shares, sizes < len(labels) / parts)
            cuts = np.floor(np.cumsum(shares) * len(shuffled) + _ROUNDING).astype(np.int64)[:-1]
            for part, piece in enumerate(np.split(shuffled, cuts)):
                pieces[part].append(piece)
                sizes[part] += len(piece)
        if sizes.min() >= min_size:
            return tuple(np.sort(np.concatenate(piece)) for piece in pieces)
        smallest = max(smallest, int(sizes.min()))
    raise AnchorageError(
        PARTITION_IMPOSSIBLE,
        f"found no draw in {MOST_TRIES} that gives each of {parts} parts {min_size} of {len(labels)} images at alpha {alpha:g} "
        f"(the best left one with {smallest}); lower partition.minSize or parts, or raise alpha",
    )


def _capped(shares: NDArray[np.float64], open_parts: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Renormalise over the parts that still take images; uniform over them where all of them drew no mass."""
    kept = np.where(open_parts, np.nan_to_num(shares), 0.0)
    if kept.sum() <= 0:
        kept = open_parts.astype(np.float64)
    whole: NDArray[np.float64] = kept / kept.sum()
    return whole


def equal_sizes(total: int, parts: int) -> list[int]:
    """Return sizes that differ by one at most, the larger ones first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def power_law_sizes(total: int, parts: int, exponent: float = 1.5) -> list[int]:
    """Return sizes proportional to rank^-exponent (METHODS.md 4.3, KAT X1)."""
    return _proportional(np.arange(1, parts + 1, dtype=np.float64) ** -exponent, total)


def skewed_sizes(total: int, parts: int) -> list[int]:
    """Return sizes proportional to parts + 1 − rank (METHODS.md 4.3, KAT X2)."""
    return _proportional(np.arange(parts, 0, -1, dtype=np.float64), total)


_SIZES: Mapping[str, Callable[[int, int], list[int]]] = {
    "Uniform": equal_sizes,
    "PowerLaw": power_law_sizes,
    "Skewed": skewed_sizes,
}


def _proportional(weights: NDArray[np.floating], total: int) -> list[int]:
    """Round shares of a total by largest remainder, the earlier first where remainders are equal."""
    shares = total * weights / weights.sum()
    sizes = np.floor(shares + _ROUNDING).astype(np.int64)
    order = np.argsort(-np.round(shares - sizes, 9), kind="stable")
    sizes[order[: total - sizes.sum()]] += 1
    return [int(size) for size in sizes]

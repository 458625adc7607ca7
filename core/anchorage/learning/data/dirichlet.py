"""The three recipes that go by the name Dirichlet (methods reference, 4.2)."""

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import PARTITION_IMPOSSIBLE
from anchorage.learning.data.sizes import equal_sizes

Rows = NDArray[np.int64]

MOST_TRIES = 1000
_ROUNDING = 1e-9
"""A cut of 49.99999999999999 counts as 50 (KAT W1)."""


def per_client(labels: NDArray[np.int64], parts: int, alpha: float, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Give every part the same number of images and a class mix of its own (recipe D1, "LDA").

    Every part draws ``q ~ Dir(alpha)`` over the classes; then part by part, image by image, a class is drawn from q and one unused image
    of it; a class that runs out is dropped and q renormalised. Draws in the order of KAT W2: the shuffle of each class, all q, then one
    uniform number an image.
    """
    pools = [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    mixes = np.nan_to_num(rng.dirichlet(np.full(len(pools), alpha), parts))
    remaining = np.array([len(pool) for pool in pools])
    divided = []
    for size, mix in zip(equal_sizes(len(labels), parts), mixes, strict=True):
        counts = _draw_classes(mix, remaining, rng.random(size))
        rows = [pool[end - count : end] for pool, end, count in zip(pools, remaining, counts, strict=True)]
        divided.append(np.sort(np.concatenate(rows)))
        remaining -= counts
    return tuple(divided)


def _draw_classes(
    mix: NDArray[np.float64], remaining: NDArray[np.int64], uniforms: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Count how often each class is drawn, one draw a uniform number; never more often than it has images left."""
    counts = np.zeros_like(remaining)
    while len(uniforms):
        room = remaining - counts
        weights = np.where(room > 0, mix, 0.0)
        if weights.sum() <= 0:
            weights = (room > 0).astype(np.float64)
        bounds = np.cumsum(weights / weights.sum())
        drawn = np.minimum(np.searchsorted(bounds, uniforms, side="right"), np.flatnonzero(weights)[-1])
        end = len(uniforms)
        for c in np.flatnonzero(np.bincount(drawn, minlength=len(room)) >= room):
            if room[c] > 0:
                end = min(end, int(np.flatnonzero(drawn == c)[room[c] - 1]) + 1)
        counts += np.bincount(drawn[:end], minlength=len(room))
        uniforms = uniforms[end:]
    return counts


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
    asked = f"each of {parts} parts {min_size} of {len(labels)} images"
    if parts * min_size > len(labels):
        raise AnchorageError(PARTITION_IMPOSSIBLE, f"there is no way to give {asked}; lower partition.minSize or parts")
    members = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    smallest, last = -1, 0
    for _ in range(MOST_TRIES):
        pieces: list[list[Rows]] = [[] for _ in range(parts)]
        sizes = np.zeros(parts, dtype=np.int64)
        for rows in members:
            shuffled = rng.permutation(rows)
            shares = rng.dirichlet(np.full(parts, alpha))
            if capped:
                shares = _cap(shares, sizes < len(labels) / parts)
            cuts = np.floor(np.cumsum(shares) * len(shuffled) + _ROUNDING).astype(np.int64)[:-1]
            for part, piece in enumerate(np.split(shuffled, cuts)):
                pieces[part].append(piece)
                sizes[part] += len(piece)
        if sizes.min() >= min_size:
            return tuple(np.sort(np.concatenate(piece)) for piece in pieces)
        if sizes.min() > smallest:
            smallest, last = int(sizes.min()), int(sizes.argmin())
    raise AnchorageError(
        PARTITION_IMPOSSIBLE,
        f"found no draw in {MOST_TRIES} that gives {asked} at alpha {alpha:g} "
        f"(the best left part {last} with {smallest}); lower partition.minSize or parts, or raise alpha",
    )


def _cap(shares: NDArray[np.float64], open_parts: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Renormalise over the parts that still take images; uniform over them where all of them drew no mass."""
    open_shares = np.where(open_parts, np.nan_to_num(shares), 0.0)
    if open_shares.sum() <= 0:
        open_shares = open_parts.astype(np.float64)
    rescaled_shares: NDArray[np.float64] = open_shares / open_shares.sum()
    return rescaled_shares

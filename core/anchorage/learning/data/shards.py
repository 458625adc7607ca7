"""Shards: pieces of one class each, so many to a part (methods reference, 4.3: FedAvg and SemiFL, FedMix)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import PARTITION_IMPOSSIBLE

Rows = NDArray[np.int64]


def deal_shards(
    labels: NDArray[np.int64], shards: Sequence[int], rng: np.random.Generator, *, distinct: bool
) -> tuple[Rows, ...]:
    """Cut every class into shards and deal them.

    Every class is cut into ``sum(shards) / C`` shards; where that is no whole number, the largest classes are cut into one more. Then a
    shuffled list of the shards' classes is dealt (SemiFL's `l-x`): a class may come to one part twice. Distinct shards (FedMix) are dealt
    part by part, in random order, from the classes with most shards left, so that no class comes twice.

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        Class ids.
    shards : sequence of int
        Shards of each part.
    rng : Generator
        Draws the shards.
    distinct : bool
        Whether the shards of a part are of different classes.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: fewer shards than classes, more shards of a class than images, or a part with more shards than classes.
    """
    members = [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    supply = np.array([len(rows) for rows in members])
    each, more = divmod(sum(shards), len(supply))
    cuts = np.full(len(supply), each)
    cuts[np.argsort(-supply, kind="stable")[:more]] += 1
    if each == 0:
        raise AnchorageError(
            PARTITION_IMPOSSIBLE,
            f"found {sum(shards)} shards for {len(supply)} classes, so some would be nobody's; raise partition.classesPerPart or parts",
        )
    if (supply < cuts).any():
        scarce = int((supply - cuts).argmin())
        raise AnchorageError(
            PARTITION_IMPOSSIBLE,
            f"found {supply[scarce]} images of class {np.unique(labels)[scarce]} for {cuts[scarce]} shards; "
            "lower partition.classesPerPart or parts",
        )
    if distinct:
        hands = _distinct_hands(shards, cuts, rng)
    else:
        hands = np.split(rng.permutation(np.repeat(np.arange(len(cuts)), cuts)), np.cumsum(shards)[:-1])
    pieces = [np.array_split(rows, cut) for rows, cut in zip(members, cuts, strict=True)]
    return tuple(np.sort(np.concatenate([pieces[c].pop() for c in hand])) for hand in hands)


def _distinct_hands(
    shards: Sequence[int], cuts: NDArray[np.int64], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    remaining = cuts.copy()
    hands: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * len(shards)
    for part in rng.permutation(len(shards)):
        hand = np.lexsort((rng.random(len(remaining)), -remaining))[: shards[part]]
        if len(hand) < shards[part] or remaining[hand].min() < 1:
            raise AnchorageError(
                PARTITION_IMPOSSIBLE,
                f"part {part} shall hold {shards[part]} classes, {np.count_nonzero(remaining)} of {len(remaining)} have a shard left for it; "
                "lower partition.classesPerPart",
            )
        remaining[hand] -= 1
        hands[part] = hand
    return hands

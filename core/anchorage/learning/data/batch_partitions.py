"""FedMatch's divisions: labelled images dealt first, the rest evenly or by a table (methods reference, 4.3)."""

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import PARTITION_IMPOSSIBLE

Rows = NDArray[np.int64]

MIX = (0.50, 0.15, 0.03, 0.03, 0.03, 0.02, 0.03, 0.03, 0.03, 0.15)
"""Batch-NonIID: class mix of part 0; part j has it shifted by j classes."""


def labelled_rows(labels: NDArray[np.int64], parts: int, each: int, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Deal every part the same number of images of each class.

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        Class ids, -1 without a label.
    parts : int
        How many parts.
    each : int
        Images of each class in a part.
    rng : Generator
        Draws the images.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: a class has too few images.
    """
    hands = []
    for c in np.unique(labels[labels >= 0]):
        rows = rng.permutation(np.flatnonzero(labels == c))
        if len(rows) < parts * each:
            raise AnchorageError(
                PARTITION_IMPOSSIBLE,
                f"found {len(rows)} images of class {c}, {parts} parts shall have {each} labelled ones each; "
                "lower partition.labelledPerClass",
            )
        hands.append(rows[: parts * each].reshape(parts, each))
    dealt = np.sort(np.concatenate(hands, axis=1)) if hands else np.empty((parts, 0), np.int64)
    return tuple(dealt)


def batch_iid(labels: NDArray[np.int64], parts: int, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Give every part ``n_c // parts`` images of each class; what is left over is nobody's, as in the public code."""
    hands = []
    for c in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == c))
        each = len(rows) // parts
        hands.append(rows[: parts * each].reshape(parts, each))
    return tuple(np.sort(np.concatenate(hands, axis=1)))


def batch_non_iid(labels: NDArray[np.int64], parts: int, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Give part j ``n // parts`` images whose classes are drawn from `MIX`, shifted by j classes.

    The images are taken from the classes' pools in the order of the parts: a pool that is exhausted shortens the parts that follow, as
    in the public code, and what is left over is nobody's.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: there are not ten classes, or a part gets no image.
    """
    classes = np.unique(labels)
    if len(classes) != len(MIX):
        raise AnchorageError(
            PARTITION_IMPOSSIBLE, f"found {len(classes)} classes, the recipe BatchNonIid has a table for {len(MIX)}"
        )
    pools = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
    divided = []
    for part in range(parts):
        mix = np.roll(MIX, part % len(MIX))
        drawn = rng.choice(len(MIX), len(labels) // parts, p=mix / mix.sum())
        counts = np.bincount(drawn, minlength=len(MIX))
        rows = np.sort(np.concatenate([pool[:count] for pool, count in zip(pools, counts, strict=True)]))
        if not len(rows):
            raise AnchorageError(
                PARTITION_IMPOSSIBLE, f"the classes of part {part} are exhausted; lower partition.parts or add images"
            )
        pools = [pool[count:] for pool, count in zip(pools, counts, strict=True)]
        divided.append(rows)
    return tuple(divided)

"""Parts of a pool that are taken before the silos' parts: test and validation part, anchors, and the labels that are kept."""

import statistics

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import TOO_FEW_ANCHORS
from anchorage.learning.data.listing import Listing

Rows = NDArray[np.int64]


def held_out_rows(listing: Listing, percent: int, rng: np.random.Generator) -> Rows:
    """Hold out whole groups (lesions, patients), of each class about its share.

    A group counts for its most frequent class (the lowest where several are). Groups are drawn class by class and taken while they do
    not exceed the class's share ``round_half_up(percent * n)``; the share is exact where every group is one image.

    Parameters
    ----------
    listing : Listing
        The pool.
    percent : int
        Share of the pool, 0 to 90.
    rng : Generator
        Draws the groups.

    Returns
    -------
    Rows
        Ascending.
    """
    names, group_of = np.unique(np.array(listing.groups, dtype=object), return_inverse=True)
    members = np.split(np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1]) if len(names) else []
    class_of = np.array([_most_frequent(listing.strata[rows]) for rows in members], dtype=np.int64)
    chosen: list[Rows] = []
    for c in np.unique(class_of):
        groups = rng.permutation(np.flatnonzero(class_of == c))
        share = _round_half_up(percent, sum(len(members[group]) for group in groups))
        for group in groups:
            if len(members[group]) <= share:
                chosen.append(members[group])
                share -= len(members[group])
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)


def anchor_rows(
    labels: NDArray[np.int64], classes: tuple[str, ...], count: int, rng: np.random.Generator, *, balanced: bool = True
) -> Rows:
    """Draw labelled images for the server (methods reference, 4.1).

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        Class ids, -1 without a label.
    classes : tuple of str
        Names of the classes.
    count : int
        Images in all.
    rng : Generator
        Draws the images.
    balanced : bool
        Whether every class gives the same number, the first ones one more where it does not divide; else chance decides, and a class may
        give none.

    Returns
    -------
    Rows
        Ascending positions in `labels`.

    Raises
    ------
    AnchorageError
        TOO_FEW_ANCHORS: a class would give none, or has fewer than it shall give; not balanced: there are fewer labelled images.
    """
    if not balanced:
        labelled = rng.permutation(np.flatnonzero(labels >= 0))
        if len(labelled) < count:
            raise AnchorageError(
                TOO_FEW_ANCHORS,
                f"found {len(labelled)} labelled images outside the test and the validation part, {count} are to be anchors; "
                "lower anchors, testPercent or validationPercent, or add images",
            )
        return np.sort(labelled[:count])
    if count < len(classes):
        raise AnchorageError(
            TOO_FEW_ANCHORS, f"found anchors: {count} for {len(classes)} classes; ask for at least one of each class"
        )
    chosen = []
    for c, name in enumerate(classes):
        wanted = count // len(classes) + (c < count % len(classes))
        members = np.flatnonzero(labels == c)
        if len(members) < wanted:
            raise AnchorageError(
                TOO_FEW_ANCHORS,
                f'found {len(members)} labelled images of class "{name}" outside the test and the validation part, {wanted} are to be anchors; '
                "lower anchors, testPercent or validationPercent, or add images",
            )
        chosen.append(rng.permutation(members)[:wanted])
    return np.sort(np.concatenate(chosen))


def keep_labels(labels: NDArray[np.int64], percent: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Keep the labels of a share of each class, at least one where the share is not 0; the others become -1 (methods reference, 4.1)."""
    labels_left = np.full_like(labels, -1)
    for c in np.unique(labels[labels >= 0]):
        members = rng.permutation(np.flatnonzero(labels == c))
        rows = members[: max(percent > 0, _round_half_up(percent, len(members)))]
        labels_left[rows] = c
    return labels_left


def _round_half_up(percent: int, count: int) -> int:
    return (percent * count + 50) // 100


def _most_frequent(labels: NDArray[np.int64]) -> int:
    """Return the most frequent label, the smallest of equally frequent ones."""
    return int(statistics.mode(np.sort(labels).tolist()))

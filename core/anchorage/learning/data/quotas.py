"""Parts of given sizes and given numbers of classes that use every image: Metis' Non-IID(x) (methods reference, 4.3)."""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import PARTITION_IMPOSSIBLE

Rows = NDArray[np.int64]
Counts = NDArray[np.int64]

MOST_TRIES = 100
_MOST_SWEEPS = 1000
_CONVERGED = 1e-6
_NOISE = 0.05
"""Standard deviation of the noise that chooses classes, as a share of the mean class's images (gives the quotas of KAT X3)."""


def divide_by_quota(
    labels: NDArray[np.int64], sizes: Sequence[int], classes: Sequence[int], rng: np.random.Generator
) -> tuple[Rows, ...]:
    """Give part k ``sizes[k]`` images of exactly ``classes[k]`` classes; the sizes add up to the number of images.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: as `class_quota`.
    """
    ids, supply = np.unique(labels, return_counts=True)
    quota = class_quota(np.array(sizes), np.array(classes), supply, rng)
    pieces = []
    for c, counts in zip(ids, quota.T, strict=True):
        pieces.append(np.split(rng.permutation(np.flatnonzero(labels == c)), np.cumsum(counts)[:-1]))
    return tuple(np.sort(np.concatenate(rows)) for rows in zip(*pieces, strict=True))


def class_quota(sizes: Counts, classes: Counts, supply: Counts, rng: np.random.Generator) -> Counts:
    """Find how many images of each class each part holds, such that every image is used (KAT X3).

    Parameters
    ----------
    sizes : ndarray of int64, shape [K]
        Images of each part.
    classes : ndarray of int64, shape [K]
        Classes of each part.
    supply : ndarray of int64, shape [C]
        Images of each class; their sum is that of `sizes`.
    rng : Generator
        Draws the noise that chooses classes.

    Returns
    -------
    ndarray of int64, shape [K, C]
        Row sums are `sizes`, column sums `supply`, and row k has ``classes[k]`` numbers above 0.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: some part's size cannot be had with its number of classes, or no quota was found in `MOST_TRIES` tries.
    """
    _refuse_impossible(sizes, classes, supply)
    for _ in range(MOST_TRIES):
        quota = try_quota(sizes, classes, supply, rng)
        if quota is not None:
            return quota
    most = np.cumsum(np.sort(supply)[::-1])[classes - 1]
    tightest = max(range(len(sizes)), key=(sizes / most).__getitem__)
    raise AnchorageError(
        PARTITION_IMPOSSIBLE,
        f"found no quota in {MOST_TRIES} tries; the tightest is part {tightest}: {sizes[tightest]} images, and its {classes[tightest]} "
        f"largest classes hold {most[tightest]}; raise partition.classesPerPart there, or choose other sizes",
    )


def try_quota(sizes: Counts, classes: Counts, supply: Counts, rng: np.random.Generator) -> Counts | None:
    """Try `class_quota` once: choose classes, scale rows and columns in turn (RAS), round; None where that leads nowhere."""
    support = _choose_classes(sizes, classes, supply, rng)
    if not support.any(axis=0).all():
        return None
    quota = support.astype(np.float64)
    for _ in range(_MOST_SWEEPS):
        quota *= (sizes / quota.sum(axis=1))[:, None]
        quota *= supply / quota.sum(axis=0)
        if np.abs(quota.sum(axis=1) - sizes).max() < _CONVERGED:
            break
    else:
        return None
    if quota[support].min() < 1 - _CONVERGED:
        return None
    return _round_quotas(quota, support, sizes, supply)


def _refuse_impossible(sizes: Counts, classes: Counts, supply: Counts) -> None:
    most = np.concatenate(([0], np.cumsum(np.sort(supply)[::-1])))
    for part, (size, count) in enumerate(zip(sizes.tolist(), classes.tolist(), strict=True)):
        if count > len(supply):
            detail = f"part {part} shall hold {count} classes, there are {len(supply)}; lower partition.classesPerPart"
        elif size < count:
            detail = f"part {part} shall hold {size} images of {count} classes; lower partition.classesPerPart or parts"
        elif size > most[count]:
            detail = (
                f"part {part} shall hold {size} images of {count} classes, the {count} largest hold {most[count]}; "
                "raise partition.classesPerPart there, or choose other sizes"
            )
        else:
            continue
        raise AnchorageError(PARTITION_IMPOSSIBLE, detail)
    if classes.sum() < len(supply):
        raise AnchorageError(
            PARTITION_IMPOSSIBLE,
            f"all parts together shall hold {classes.sum()} classes, there are {len(supply)}; raise partition.classesPerPart",
        )


def _choose_classes(sizes: Counts, classes: Counts, supply: Counts, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Give each part, the largest first, the classes with most images left, up to some noise."""
    support = np.zeros((len(sizes), len(supply)), dtype=np.bool_)
    remaining = supply.astype(np.float64)
    for part in np.argsort(-sizes, kind="stable"):
        noisy = remaining + rng.normal(size=len(supply)) * _NOISE * supply.mean()
        chosen = np.argsort(-noisy, kind="stable")[: classes[part]]
        support[part, chosen] = True
        remaining[chosen] -= sizes[part] / classes[part]
    return support


def _round_quotas(
    quota: NDArray[np.float64], support: NDArray[np.bool_], sizes: Counts, supply: Counts
) -> Counts | None:
    """Round down, hand out what is missing by largest remainder, and the rest along paths of rows and columns."""
    rounded = np.floor(quota + _CONVERGED).astype(np.int64)
    rows, columns = sizes - rounded.sum(axis=1), supply - rounded.sum(axis=0)
    places = np.argwhere(support)
    for part, c in places[np.argsort(-(quota - rounded)[support], kind="stable")]:
        if rows[part] > 0 and columns[c] > 0:
            rounded[part, c] += 1
            rows[part] -= 1
            columns[c] -= 1
    while (rows > 0).any():
        start = int(np.flatnonzero(rows > 0)[0])
        path = _path(rounded, support, start, columns)
        if path is None:
            return None
        for step, (part, c) in enumerate(path):
            rounded[part, c] += 1 if step % 2 == 0 else -1
        rows[start] -= 1
        columns[path[-1][1]] -= 1
    return rounded


def _path(counts: Counts, support: NDArray[np.bool_], start: int, missing: Counts) -> list[tuple[int, int]] | None:
    """Find the shortest way to give a row one more and a column that misses one: places to raise and to lower, in turn.

    A place is lowered only where more than one image stays, so that no class leaves a part.
    """
    came: dict[tuple[str, int], tuple[str, int]] = {}
    queue = deque([("row", start)])
    while queue:
        node = kind, index = queue.popleft()
        if kind == "row":
            steps = [("column", int(c)) for c in np.flatnonzero(support[index])]
        else:
            steps = [("row", int(part)) for part in np.flatnonzero(support[:, index] & (counts[:, index] > 1))]
        for step in steps:
            if step in came or step == ("row", start):
                continue
            came[step] = node
            if step[0] == "column" and missing[step[1]] > 0:
                return _walk_back(came, step)
            queue.append(step)
    return None


def _walk_back(came: dict[tuple[str, int], tuple[str, int]], end: tuple[str, int]) -> list[tuple[int, int]]:
    places = []
    while end in came:
        before = came[end]
        places.append((before[1], end[1]) if before[0] == "row" else (end[1], before[1]))
        end = before
    return places[::-1]

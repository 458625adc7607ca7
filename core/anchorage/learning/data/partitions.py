"""How one pool of images is divided among silos (methods reference, 4.2, 4.3)."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from anchorage.api.data import Partition
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import PARTITION_IMPOSSIBLE
from anchorage.learning.data.batch_partitions import batch_iid, batch_non_iid
from anchorage.learning.data.dirichlet import per_class, per_client
from anchorage.learning.data.quotas import divide_by_quota
from anchorage.learning.data.shards import deal_shards
from anchorage.learning.data.sizes import SIZES

Rows = NDArray[np.int64]
"""Positions in the pool, ascending."""

Labels = NDArray[np.int64]


def divide(partition: Partition, labels: Labels, rng: np.random.Generator) -> tuple[Rows, ...]:
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
        One entry per part; no row is in two. Every row is in one, but for FedMatch's recipes, which leave some over.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: the images cannot be divided so; the message names the part.
    """
    parts = partition.parts or 1
    if len(labels) < parts:
        raise AnchorageError(
            PARTITION_IMPOSSIBLE, f"found {len(labels)} images for {parts} parts; lower partition.parts or add images"
        )
    if partition.recipe.startswith("Per") and float(partition.alpha) == 0:
        raise AnchorageError(PARTITION_IMPOSSIBLE, 'found alpha "0"; a Dirichlet concentration is larger than 0')
    return _RECIPES[partition.recipe](partition, labels, rng)


def _iid(partition: Partition, labels: Labels, rng: np.random.Generator) -> tuple[Rows, ...]:
    """Deal at random into parts of the asked sizes."""
    order = rng.permutation(len(labels))
    sizes = SIZES[partition.sizes](len(labels), partition.parts or 1)
    return tuple(np.sort(rows) for rows in np.split(order, np.cumsum(sizes)[:-1]))


def deal_groups(partition: Partition, groups: tuple[str, ...], rng: np.random.Generator) -> tuple[Rows, ...]:
    """Deal whole groups, such as patients, at random into parts of about the asked sizes: each goes to the part that is furthest below its size.

    Parameters
    ----------
    partition : Partition
        Of the recipe Iid.
    groups : tuple of str, length n
        Whose image each is.
    rng : Generator
        Draws the order of the groups.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE: there are fewer groups than parts.
    """
    parts = partition.parts or 1
    names, group_of = np.unique(np.array(groups, dtype=object), return_inverse=True)
    if len(names) < parts:
        raise AnchorageError(
            PARTITION_IMPOSSIBLE, f"found {len(names)} patients or lesions for {parts} parts; lower partition.parts"
        )
    room = np.array(SIZES[partition.sizes](len(groups), parts), np.float64)
    sizes, part_of = np.bincount(group_of), np.empty(len(names), np.int64)
    for group in rng.permutation(len(names)):
        part_of[group] = room.argmax()
        room[part_of[group]] -= sizes[group]
    return tuple(np.flatnonzero(part_of[group_of] == part) for part in range(parts))


def _per_client(partition: Partition, labels: Labels, rng: np.random.Generator) -> tuple[Rows, ...]:
    return per_client(labels, partition.parts or 1, float(partition.alpha), rng)


def _per_class(partition: Partition, labels: Labels, rng: np.random.Generator) -> tuple[Rows, ...]:
    return per_class(
        labels,
        partition.parts or 1,
        float(partition.alpha),
        rng,
        capped=partition.recipe == "PerClassCapped",
        min_size=partition.min_size,
    )


def _shards(partition: Partition, labels: Labels, rng: np.random.Generator) -> tuple[Rows, ...]:
    return deal_shards(labels, partition.class_counts, rng, distinct=partition.recipe == "DistinctShards")


def _class_quota(partition: Partition, labels: Labels, rng: np.random.Generator) -> tuple[Rows, ...]:
    sizes = SIZES[partition.sizes](len(labels), partition.parts or 1)
    return divide_by_quota(labels, sizes, partition.class_counts, rng)


def _batch_iid(partition: Partition, labels: Labels, rng: np.random.Generator) -> tuple[Rows, ...]:
    return batch_iid(labels, partition.parts or 1, rng)


def _batch_non_iid(partition: Partition, labels: Labels, rng: np.random.Generator) -> tuple[Rows, ...]:
    return batch_non_iid(labels, partition.parts or 1, rng)


_RECIPES: Mapping[str, Callable[[Partition, Labels, np.random.Generator], tuple[Rows, ...]]] = {
    "Iid": _iid,
    "PerClient": _per_client,
    "PerClass": _per_class,
    "PerClassCapped": _per_class,
    "Shards": _shards,
    "DistinctShards": _shards,
    "ClassQuota": _class_quota,
    "BatchIid": _batch_iid,
    "BatchNonIid": _batch_non_iid,
}

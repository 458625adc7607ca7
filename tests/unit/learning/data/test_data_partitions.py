"""Recipes of the methods reference, 4.2 and 4.3 against the known answers, and what holds for every draw."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorage.api.data import Partition
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import PARTITION_IMPOSSIBLE, TOO_FEW_ANCHORS
from anchorage.learning.data import dirichlet
from anchorage.learning.data.dirichlet import per_class, per_client
from anchorage.learning.data.listing import Listing
from anchorage.learning.data.partitions import divide
from anchorage.learning.data.splits import anchor_rows, held_out_rows, keep_labels


def rng(seed=0):
    return np.random.default_rng(seed)


def listing(labels, groups):
    ids = tuple(f"i{row}" for row in range(len(labels)))
    return Listing(ids, tuple(groups), (None,) * len(ids), np.array(labels), np.array(labels), ("a", "b"), {})


def sizes_of(parts):
    return [len(rows) for rows in parts]


@pytest.mark.known_answers
def test_dirichlet_counts_are_the_known_ones(known, monkeypatch):
    inputs = known.inputs("W1_dirichlet_counts")
    monkeypatch.setattr(dirichlet, "MOST_TRIES", inputs["max_tries"])
    classes, each = map(int, re.findall(r"\d+", inputs["labels"]))
    labels = np.repeat(np.arange(classes), each)
    computed = {}
    for alpha in inputs["alpha"]:
        for capped in (True, False):
            parts = per_class(
                labels, inputs["K"], alpha, rng(inputs["seed"]), capped=capped, min_size=inputs["min_size"]
            )
            counts = [np.bincount(labels[rows], minlength=classes).tolist() for rows in parts]
            computed[f"alpha_{alpha:g}_cap_{capped}"] = counts
    known.check("W1_dirichlet_counts", computed)


@pytest.mark.known_answers
def test_three_recipes_differ_as_known(known):
    """Exact: the draws are those of the known answers, which the published file does not tell."""
    name = "W2_dirichlet_100_clients"
    inputs, expected = known.inputs(name), known.expected(name)
    classes, each = map(int, re.findall(r"\d+", inputs["labels"]))
    labels, clients = np.repeat(np.arange(classes), each), inputs["clients"]
    first, last = map(int, re.findall(r"\d+", inputs["acceptance_rate_seeds"])[:2])

    def alpha_in(key):
        return float(re.search(r"alpha(\d+(?:p\d+)?)", key)[1].replace("p", "."))

    def cut(seed, alpha, capped):
        return per_class(labels, clients, alpha, rng(seed), capped=capped, min_size=0)

    def mean_classes(parts):
        return np.mean([len(np.unique(labels[rows])) for rows in parts])

    def summary(key):
        parts = cut(inputs["seed"], alpha_in(key), "capped" in key)
        sizes = sizes_of(parts)
        results = {
            "min": min(sizes),
            "median": np.median(sizes),
            "max": max(sizes),
            "empty": sizes.count(0),
            "mean_classes": mean_classes(parts),
        }
        return {field: results[field] for field in expected[key]}

    def equal(key):
        others = next(field for field in expected[key] if field.startswith("mean_classes_seeds_"))
        seeds = [inputs["seed"], *map(int, re.findall(r"_(\d+)", others))]
        drawn = [per_client(labels, clients, alpha_in(key), rng(seed)) for seed in seeds]
        (size,) = {size for parts in drawn for size in sizes_of(parts)}
        first, *further = map(mean_classes, drawn)
        return {"size": size, "mean_classes": first, others: further}

    def accepted(key):
        least = int(re.search(r"min_size_(\d+)", key)[1])
        smallest = {
            capped: [min(sizes_of(cut(seed, alpha_in(key), capped))) for seed in range(first, last + 1)]
            for capped in (False, True)
        }
        return {
            "uncapped": np.mean(np.array(smallest[False]) >= least),
            "capped": np.mean(np.array(smallest[True]) >= least),
        }

    kinds = {"per_client": equal, "acceptance": accepted, "per_class": summary}
    computed = {key: next(kind for start, kind in kinds.items() if key.startswith(start))(key) for key in expected}
    known.check(name, computed)


@settings(max_examples=60, deadline=None)
@given(
    recipe=st.sampled_from(
        ["Iid", "PerClient", "PerClass", "PerClassCapped", "Shards", "DistinctShards", "ClassQuota"]
    ),
    labels=st.lists(st.integers(-1, 4), min_size=12, max_size=80),
    parts=st.integers(1, 12),
    alpha=st.sampled_from(["0.0001", "0.1", "0.8", "1000"]),
    seed=st.integers(0, 2**32),
)
def test_every_image_is_in_exactly_one_part_and_the_same_seed_gives_the_same_parts(recipe, labels, parts, alpha, seed):
    partition = Partition(recipe=recipe, parts=parts, alpha=alpha, min_size=0, classes_per_part="3")
    try:
        divided = divide(partition, np.array(labels), rng(seed))
    except AnchorageError as error:
        assert error.failure is PARTITION_IMPOSSIBLE and recipe in ("Shards", "DistinctShards", "ClassQuota")
        return
    assert len(divided) == parts
    if recipe in ("DistinctShards", "ClassQuota"):
        assert all(len(set(np.array(labels)[rows])) == 3 for rows in divided)
    assert sorted(np.concatenate(divided).tolist()) == list(range(len(labels)))
    if recipe in ("Iid", "PerClient", "ClassQuota"):
        assert max(sizes_of(divided)) - min(sizes_of(divided)) <= 1
    repeated = divide(partition, np.array(labels), rng(seed))
    assert all(np.array_equal(one, other) for one, other in zip(divided, repeated, strict=True))


def test_capped_parts_hold_at_most_their_share_and_one_class():
    labels = np.repeat(np.arange(10), 100)
    for seed in range(20):
        sizes = sizes_of(per_class(labels, 10, 0.1, rng(seed), capped=True, min_size=0))
        assert max(sizes) < 100 + 100


def test_capped_parts_are_drawn_uniformly_where_the_open_ones_have_no_mass():
    labels = np.repeat(np.arange(3), 40)
    for seed in range(30):
        assert sum(sizes_of(per_class(labels, 3, 0.0005, rng(seed), capped=True, min_size=0))) == 120


TEN = np.repeat(np.arange(10), 60)


@pytest.mark.parametrize(
    ("recipe", "parts", "fields", "labels", "words"),
    [
        ("Iid", 21, {}, np.zeros(20), "20 images for 21 parts"),
        ("PerClass", 5, {"min_size": 4, "alpha": "0.01"}, np.zeros(20), "1000 that gives .* 4 of 20.*left part . with"),
        ("PerClass", 5, {"min_size": 5}, np.zeros(20), "no way to give each of 5 parts 5 of 20"),
        ("PerClient", 5, {"alpha": "0"}, np.zeros(20), "alpha"),
        ("Shards", 4, {}, TEN, "8 shards for 10 classes"),
        ("Shards", 5, {"classes_per_part": "4"}, np.append(TEN[60:], 0), "1 images of class 0 for 2 shards"),
        ("DistinctShards", 5, {"classes_per_part": "11"}, TEN, "part . shall hold 11 classes, 10 of 10"),
        ("ClassQuota", 2, {"classes_per_part": "1"}, np.repeat([0, 1, 2], [99, 1, 1]), "2 classes, there are 3"),
        ("ClassQuota", 4, {"classes_per_part": "5x3,11x1"}, TEN, "part 3 shall hold 11 classes, there are 10"),
        ("ClassQuota", 3, {"classes_per_part": "6", "sizes": "PowerLaw"}, TEN, "part 0 .* the 6 largest hold 360"),
        ("ClassQuota", 300, {"classes_per_part": "3"}, TEN, "part 0 shall hold 2 images of 3 classes"),
        ("BatchNonIid", 2, {}, TEN[60:], "9 classes, the recipe BatchNonIid has a table for 10"),
    ],
)
def test_partitions_that_cannot_exist_name_the_row(recipe, parts, fields, labels, words):
    with pytest.raises(AnchorageError, match=words) as raised:
        divide(Partition(recipe=recipe, parts=parts, **fields), labels.astype(np.int64), rng())
    assert raised.value.failure is PARTITION_IMPOSSIBLE


def test_shards_are_of_one_class_each_and_equal():
    for seed in range(20):
        for recipe in ("Shards", "DistinctShards"):
            parts = divide(Partition(recipe=recipe, parts=20, classes_per_part="2"), TEN, rng(seed))
            assert set(sizes_of(parts)) == {30}
            for rows in parts:
                counts = np.bincount(TEN[rows], minlength=10)
                assert set(counts) <= ({0, 15} if recipe == "DistinctShards" else {0, 15, 30})


def test_a_class_may_come_to_a_part_twice_with_shards():
    partition = Partition(recipe="Shards", parts=20, classes_per_part="2")
    assert any(len(np.unique(TEN[rows])) == 1 for seed in range(9) for rows in divide(partition, TEN, rng(seed)))


def test_shards_that_do_not_divide_cut_the_largest_classes_once_more():
    labels = np.repeat([0, 1, 2], [90, 30, 60])
    parts = divide(Partition(recipe="DistinctShards", parts=4, classes_per_part="1"), labels, rng())
    assert sorted(sizes_of(parts)) == [30, 45, 45, 60]


def test_batches_of_fedmatch():
    """IID: as many of each class; NonIID: by the table, whose rows are shifts of the first."""
    parts = divide(Partition(recipe="BatchIid", parts=7), TEN, rng())
    assert all(np.bincount(TEN[rows]).tolist() == [8] * 10 for rows in parts)
    labels = np.repeat(np.arange(10), 5000)
    divided = divide(Partition(recipe="BatchNonIid", parts=20), labels, rng())
    assert len(np.unique(np.concatenate(divided))) == sum(sizes_of(divided))
    first, shifted = (np.bincount(labels[divided[part]], minlength=10) / 2500 for part in (0, 13))
    assert first == pytest.approx([0.5, 0.15, 0.03, 0.03, 0.03, 0.02, 0.03, 0.03, 0.03, 0.15], abs=0.03)
    assert shifted == pytest.approx(np.roll(first, 3), abs=0.04)
    assert sizes_of(divided)[0] == 2500 and sum(sizes_of(divided)) < 50_000  # exhausted classes shorten the last parts


def test_test_part_takes_whole_groups_of_each_class():
    labels = [0] * 60 + [1] * 40
    groups = [f"lesion{row // 2}" for row in range(100)]
    rows = held_out_rows(listing(labels, groups), 20, rng(3))
    held_out = {groups[row] for row in rows}
    assert held_out.isdisjoint(groups[row] for row in range(100) if row not in set(rows.tolist()))
    assert np.bincount(np.array(labels)[rows]).tolist() == [12, 8]


def test_test_part_of_one_large_group_stays_empty():
    assert held_out_rows(listing([0] * 10, ["same"] * 10), 20, rng()).size == 0


def test_anchors_are_class_balanced_and_the_first_classes_give_the_remainder():
    labels = np.array([0] * 50 + [1] * 5 + [2] * 9 + [-1] * 30)
    rows = anchor_rows(labels, ("a", "b", "c"), 14, rng())
    assert np.bincount(labels[rows]).tolist() == [5, 5, 4]


def test_anchors_need_images_of_every_class():
    labels = np.array([0] * 50 + [1] * 3)
    for classes, count, words in (
        (("a", "b"), 10, '3 labelled images of class "b"'),
        (("a", "b", "c"), 2, "anchors: 2"),
    ):
        with pytest.raises(AnchorageError, match=words) as raised:
            anchor_rows(labels, classes, count, rng())
        assert raised.value.failure is TOO_FEW_ANCHORS


def test_random_anchors_leave_classes_to_chance():
    labels = np.array([0] * 500 + [1] * 3 + [-1] * 40)
    rows = anchor_rows(labels, ("a", "b"), 10, rng(), balanced=False)
    assert len(rows) == 10 and set(labels[rows]) == {0}
    with pytest.raises(
        AnchorageError, match="503 labelled images outside the test and the validation part, 504"
    ) as raised:
        anchor_rows(labels, ("a", "b"), 504, rng(), balanced=False)
    assert raised.value.failure is TOO_FEW_ANCHORS


def test_kept_labels_are_stratified_and_never_none_of_a_class():
    labels = np.array([0] * 50 + [1] * 4 + [-1] * 6)
    labels_kept = keep_labels(labels, 10, rng())
    assert np.bincount(labels_kept[labels_kept >= 0]).tolist() == [5, 1]
    assert np.all((labels_kept == labels) | (labels_kept == -1))
    assert np.all(keep_labels(labels, 0, rng()) == -1)

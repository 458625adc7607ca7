"""Recipes of METHODS.md 4.2 and 4.3 against the known answers, and what holds for every draw."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorage.data.listing import Listing
from anchorage.data.partitions import divide, per_class, per_client, power_law_sizes, skewed_sizes
from anchorage.data.splits import anchor_rows, keep_labels
from anchorage.data.splits import test_rows as held_out_rows
from anchorage.errors import AnchorageError
from anchorage.errors.data import PARTITION_IMPOSSIBLE, TOO_FEW_ANCHORS
from anchorage.spec.data import Partition


def rng(seed=0):
    return np.random.default_rng(seed)


def listing(labels, groups):
    ids = tuple(f"i{row}" for row in range(len(labels)))
    return Listing(ids, tuple(groups), (None,) * len(ids), np.array(labels), ("a", "b"), {})


def sizes_of(parts):
    return [len(rows) for rows in parts]


@pytest.mark.known_answers
def test_dirichlet_counts_are_the_known_ones(known):
    inputs = known.inputs("W1_dirichlet_counts")
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
    expected = known.expected("W2_dirichlet_100_clients")
    labels = np.repeat(np.arange(10), 5000)
    seed = known.inputs("W2_dirichlet_100_clients")["seed"]
    for key, alpha, capped in (
        ("per_class_alpha0p1", 0.1, False),
        ("per_class_alpha0p1_capped", 0.1, True),
        ("per_class_alpha1000", 1000.0, False),
    ):
        sizes = sizes_of(per_class(labels, 100, alpha, rng(seed), capped=capped, min_size=1))
        found = {"min": min(sizes), "median": float(np.median(sizes)), "max": max(sizes), "empty": sizes.count(0)}
        for name, value in expected[key].items():
            if name in found:
                assert found[name] == pytest.approx(value, rel=0.1, abs=5)
    equal = per_client(labels, 100, 0.1, rng(seed))
    assert set(sizes_of(equal)) == {expected["per_client_alpha0p1_equal_size"]["size"]}
    classes = np.mean([len(np.unique(labels[rows])) for rows in equal])
    assert classes == pytest.approx(expected["per_client_alpha0p1_equal_size"]["mean_classes"], abs=0.6)


@pytest.mark.known_answers
def test_acceptance_rates_are_near_the_known_ones(known):
    expected = known.expected("W2_dirichlet_100_clients")["acceptance_rate_min_size_10_per_class_alpha0p1"]
    labels = np.repeat(np.arange(10), 5000)
    for name, capped in (("uncapped", False), ("capped", True)):
        draws = [per_class(labels, 100, 0.1, rng(5000 + seed), capped=capped, min_size=0) for seed in range(60)]
        assert np.mean([min(sizes_of(draw)) >= 10 for draw in draws]) == pytest.approx(expected[name], abs=0.2)


@pytest.mark.known_answers
def test_sizes_by_rank_are_the_known_ones(known):
    inputs = known.inputs("X1_power_law_sizes")
    known.check("X1_power_law_sizes", {"sizes": power_law_sizes(inputs["total"], inputs["N"], inputs["exponent"])})
    inputs = known.inputs("X2_skewed_sizes")
    formula = known.expected("X2_skewed_sizes")["formula"]
    known.check("X2_skewed_sizes", {"sizes": skewed_sizes(inputs["total"], inputs["N"]), "formula": formula})


@settings(max_examples=60, deadline=None)
@given(
    recipe=st.sampled_from(["Iid", "PerClient", "PerClass", "PerClassCapped"]),
    labels=st.lists(st.integers(-1, 4), min_size=12, max_size=80),
    parts=st.integers(1, 12),
    alpha=st.sampled_from(["0.0001", "0.1", "0.8", "1000"]),
    seed=st.integers(0, 2**32),
)
def test_every_image_is_in_exactly_one_part_and_the_same_seed_gives_the_same_parts(recipe, labels, parts, alpha, seed):
    partition = Partition(recipe=recipe, parts=parts, alpha=alpha, min_size=0)
    divided = divide(partition, np.array(labels), rng(seed))
    assert len(divided) == parts
    assert sorted(np.concatenate(divided).tolist()) == list(range(len(labels)))
    if recipe in ("Iid", "PerClient"):
        assert max(sizes_of(divided)) - min(sizes_of(divided)) <= 1
    again = divide(partition, np.array(labels), rng(seed))
    assert all(np.array_equal(one, other) for one, other in zip(divided, again, strict=True))


def test_capped_parts_hold_at_most_their_share_and_one_class():
    labels = np.repeat(np.arange(10), 100)
    for seed in range(20):
        sizes = sizes_of(per_class(labels, 10, 0.1, rng(seed), capped=True, min_size=0))
        assert max(sizes) < 100 + 100


def test_capped_parts_are_drawn_uniformly_where_the_open_ones_have_no_mass():
    labels = np.repeat(np.arange(3), 40)
    for seed in range(30):
        assert sum(sizes_of(per_class(labels, 3, 0.0005, rng(seed), capped=True, min_size=0))) == 120


def test_impossible_partitions_end_with_a_message():
    labels = np.zeros(20, dtype=np.int64)
    for partition, words in (
        (Partition(recipe="Iid", parts=21), "20 images for 21 parts"),
        (Partition(recipe="PerClass", parts=5, min_size=5), "1000"),
        (Partition(recipe="PerClient", parts=5, alpha="0"), "alpha"),
    ):
        with pytest.raises(AnchorageError, match=words) as raised:
            divide(partition, labels, rng())
        assert raised.value.failure is PARTITION_IMPOSSIBLE


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


def test_kept_labels_are_stratified_and_never_none_of_a_class():
    labels = np.array([0] * 50 + [1] * 4 + [-1] * 6)
    kept = keep_labels(labels, 10, rng())
    assert np.bincount(kept[kept >= 0]).tolist() == [5, 1]
    assert np.all((kept == labels) | (kept == -1))
    assert np.all(keep_labels(labels, 0, rng()) == -1)

"""RSCFed's weights: the known answer C1, distances against the plain form, and what is drawn (methods reference, 6.10)."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from classification_of import classes as of_classes

from anchorage.engine.aggregation import NonFiniteUpdate, weighted_mean
from anchorage.pieces.weighting.sub_consensus import SubConsensus, distances, group_shares
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

LAYOUT = Layout.of(
    [
        ("encoder.weight", "F32", (700, 500)),  # crosses a chunk's edge
        ("encoder.norm.running_mean", "F32", (3,)),
        ("encoder.norm.num_batches_tracked", "I64", ()),
        ("classifier.bias", "F64", (5,)),
        ("classifier.weight", "BF16", (4,)),
    ]
)


def model_of(seed: int) -> ModelBytes:
    rng = np.random.default_rng(seed)
    return ModelBytes.from_arrays(
        LAYOUT,
        {
            "encoder.weight": rng.standard_normal((700, 500)).astype(np.float32),
            "encoder.norm.running_mean": rng.standard_normal(3).astype(np.float32) * 1e6,
            "encoder.norm.num_batches_tracked": np.array(seed * 1000),
            "classifier.bias": rng.standard_normal(5),
            "classifier.weight": np.array(
                [0x3F80, 0x4000, 0x4040, 0x4080][seed % 4 :] + [0x3F80] * (seed % 4), np.uint16
            ),
        },
    )


def plain(values: Any) -> np.ndarray:
    """Bfloat16 as float64."""
    return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64) if values.dtype == np.uint16 else values


PARAMETERS = ("encoder.weight", "classifier.bias", "classifier.weight")


def plain_distances(models: list[ModelBytes], weights: np.ndarray, names: Iterable[str] = PARAMETERS) -> np.ndarray:
    """The sum over tensors of the norm of the difference from the weighted mean, all in memory."""
    apart = np.zeros(len(models))
    for name in names:
        values = np.stack([plain(m.arrays()[name]).astype(np.float64) for m in models]).reshape(len(models), -1)
        apart += np.linalg.norm(values - (weights[:, None] * values).sum(0) / weights.sum(), axis=1)
    return apart


def announced(train: int, labelled: int = 0) -> Announcement:
    return Announcement("task", {"train": train, "labelled": labelled}, {}, {}, model_of(0).manifest)


@pytest.mark.known_answers
def test_c1_weights_in_a_group(known):
    case = known.inputs("C1_rscfed_group_weights")
    sizes, apart = np.array(case["sizes"]), np.array(case["distances"])
    slot = SubConsensus(
        labelled_factor=known.decimal(case["labelled_multiplier"]),
        scale=known.decimal(case["unlabelled_group_scale"]),
        labelled_scale=known.decimal(case["labelled_scale"]),
    )
    one = np.isin(np.arange(len(sizes)), case["labelled_index"])
    computed = {
        "unlabelled_group": group_shares(sizes, apart, np.zeros_like(one), slot),
        "group_with_labelled": group_shares(sizes, apart, one, slot),
    }
    known.check("C1_rscfed_group_weights", computed)


def test_streamed_distances_are_the_plain_ones():
    models, weights = [model_of(i) for i in range(4)], np.array([3.0, 1.0, 0.0, 2.0])
    np.testing.assert_allclose(distances(models, weights, LAYOUT), plain_distances(models, weights), rtol=1e-12)
    plain = plain_distances(models, weights, LAYOUT.by_name)
    np.testing.assert_allclose(distances(models, weights, LAYOUT, everything=True), plain, rtol=1e-12)


@pytest.mark.parametrize(("distance", "near"), [("Parameters", True), ("All", False)])
def test_buffers_count_where_all_tensors_do(distance, near):
    weigher = SubConsensus(groups=1, group_size=2, distance=distance, scale="0.01").weigher(of_classes(2))
    weigher.choose(["a", "b"], 1, 1)
    away = model_of(1).arrays()
    away["encoder.norm.num_batches_tracked"] += 10**6
    updates = {"a": model_of(1), "b": ModelBytes.from_arrays(LAYOUT, away)}
    announcements = {"a": announced(5), "b": announced(500)}
    weigher.measure(updates, announcements, LAYOUT)
    assert (weigher.weigh(announcements, {})["a"] == pytest.approx(5 / 505)) == near


def test_far_updates_share_what_would_underflow():
    shares = group_shares(
        np.array([10.0, 10.0, 0.0]), np.array([90.0, 91.0, 1.0]), np.zeros(3, np.bool_), SubConsensus()
    )
    assert shares.sum() == pytest.approx(1)
    assert shares[0] == pytest.approx(1) and shares[2] == 0


@pytest.mark.parametrize("labelled", [0, 7])
def test_the_mean_of_all_is_the_mean_of_the_groups(labelled):
    slot = SubConsensus(groups=3, group_size=2, scale="0.02", labelled_scale="0.02")
    weigher = slot.weigher(of_classes(2))
    silos, models = list("abcde"), {name: model_of(i) for i, name in enumerate("abcde")}
    chosen = weigher.choose(silos, 1, 4)
    assert list(chosen) == [silo for silo in silos if silo in chosen]
    announcements = {s: announced(10 * i + 5, labelled if s == chosen[0] else 0) for i, s in enumerate(chosen)}
    updates = {silo: models[silo] for silo in chosen}
    weigher.measure(updates, announcements, LAYOUT)
    weights = weigher.weigh(announcements, {})
    assert sum(weights.values()) == pytest.approx(1)

    group_means = []
    for group in weigher._groups:
        members = [silo for silo in chosen if silo in group]
        sizes = np.array([announcements[s].samples["train"] for s in members], np.float64)
        known = np.array([announcements[s].samples["labelled"] > 0 for s in members])
        counted = np.where(known, 6.0, 1.0) * sizes
        apart = plain_distances([models[s] for s in members], counted)
        shares = group_shares(sizes, apart, known, slot)
        group_means.append(sum(w * models[s].arrays()["encoder.weight"] for w, s in zip(shares, members, strict=True)))
    mean = weighted_mean(list(updates.values()), [weights[s] for s in updates], LAYOUT)
    np.testing.assert_allclose(mean.arrays()["encoder.weight"], np.mean(group_means, 0), rtol=1e-5, atol=1e-6)


def test_groups_are_drawn_by_seed_and_round_alone():
    slot = SubConsensus(groups=2, group_size=2)
    silos = [f"s{i}" for i in range(20)]
    draws = [
        list(slot.weigher(of_classes(2)).choose(silos, seed, number))
        for seed, number in [(1, 1), (1, 1), (1, 2), (2, 1)]
    ]
    assert draws[0] == draws[1] and draws[0] != draws[2] and draws[0] != draws[3]
    assert all(2 <= len(chosen) <= 4 for chosen in draws)
    assert list(slot.weigher(of_classes(2)).choose(["x"], 1, 1)) == ["x"]


def test_a_silo_that_sent_nothing_is_left_out_of_its_groups():
    weigher = SubConsensus(groups=2, group_size=3).weigher(of_classes(2))
    weigher.choose(["a", "b", "c"], 1, 1)
    announcements = {"a": announced(5), "b": announced(5), "c": Announcement("task", {"train": 0}, {}, {}, None)}
    weigher.measure({"a": model_of(1), "b": model_of(2)}, announcements, LAYOUT)
    weights = weigher.weigh(announcements, {})
    assert weights["c"] == 0 and weights["a"] == pytest.approx(0.5)


def test_an_update_that_is_not_finite_is_named():
    weigher = SubConsensus(groups=1, group_size=2).weigher(of_classes(2))
    weigher.choose(["a", "b"], 1, 1)
    broken = model_of(1).arrays()
    broken["classifier.bias"][2] = np.nan
    updates = {"a": model_of(0), "b": ModelBytes.from_arrays(LAYOUT, broken)}
    with pytest.raises(NonFiniteUpdate, match="classifier.bias") as caught:
        weigher.measure(updates, {"a": announced(1), "b": announced(1)}, LAYOUT)
    assert caught.value.index == 1

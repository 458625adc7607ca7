"""Weighers on announcements that are odd or wrong, and scores against scikit-learn."""

import math
from typing import Any

import numpy as np
import pytest
from classification_of import classes as of_classes
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics

from anchorage.api.piece import PIECES
from anchorage.pieces.slots import Weighting
from anchorage.pieces.task.confusion import SCORES
from anchorage.pieces.weighting.dvw import Dvw
from anchorage.pieces.weighting.learning_status import LearningStatus
from anchorage.pieces.weighting.semianagg import SemiAnAgg
from anchorage.pieces.weighting.uniform import Uniform
from anchorage.pieces.weighting.used_count import UsedCount
from anchorage.transport.messages import Announcement, Evaluation
from anchorage.transport.tensors.chunks import Manifest

UPDATE = Manifest("layout", 0, ())
KINDS = PIECES.of("weighting")


def announce(auxiliary: dict[str, Any] | None = None, update: Manifest | None = UPDATE, **samples: int) -> Announcement:
    return Announcement("task", samples, auxiliary or {}, {}, update)


def weigh(weighting: Weighting, announcements: dict[str, Announcement], **evaluations: Any) -> dict[str, float]:
    weights = {
        silo: [Evaluation("task", {"validation": np.array(c)}) for c in counts] for silo, counts in evaluations.items()
    }
    return dict(weighting.weigher(of_classes(2)).weigh(announcements, weights))


def test_uniform_leaves_out_the_inactive():
    assert weigh(Uniform(), {"a": announce(), "b": announce(update=None)}) == {"a": 1.0, "b": 0.0}


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_announced(kind):
    assert weigh(KINDS[kind](), {}) == {}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "uniform"])
def test_nothing_counts(kind):
    assert weigh(KINDS[kind](), {"a": announce(), "b": announce()}) == {"a": 0.0, "b": 0.0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_negative_count_is_the_fault_of_its_silo_alone(kind):
    weights = weigh(KINDS[kind](), {"a": announce(train=3), "b": announce(train=-1), "c": announce(update=None)})
    assert weights["a"] == 1.0
    assert math.isnan(weights["b"])


@pytest.mark.parametrize("doubt", [[0.5, 0.1], [1.5], [-0.1], [np.nan], [[0.5]]])
def test_a_doubt_of_the_wrong_form_is_the_fault_of_its_silo_alone(doubt):
    good, bad = announce({"uncertainty": np.array([0.25])}), announce({"uncertainty": np.array(doubt)})
    weights = weigh(LearningStatus(), {"good": good, "bad": bad, "silent": announce()})
    assert (weights["good"], weights["silent"]) == (1.0, 1.0) and math.isnan(weights["bad"])
    assert weigh(LearningStatus(), {"good": good, "silent": announce()}) == {"good": 0.25, "silent": 0.0}


@pytest.mark.parametrize("similarity", [[0.5], [0.5, 1.5], [0.5, -2.0], [[0.1, 0.2]], [np.inf, 0.1]])
def test_a_similarity_of_the_wrong_form_is_the_fault_of_its_silo_alone(similarity):
    good = announce({"similarity": np.array([0.5, np.nan])}, selected=3)
    bad = announce({"similarity": np.array(similarity)}, selected=3)
    weights = weigh(SemiAnAgg(), {"good": good, "bad": bad})
    assert weights["good"] == 1.0
    assert math.isnan(weights["bad"])


def test_a_missing_similarity_is_a_fault_where_labels_were_accepted():
    assert math.isnan(weigh(SemiAnAgg(), {"a": announce(selected=3)})["a"])


def test_without_a_labelled_silo_the_unlabelled_half_carries_everything():
    sides = {name: {"similarity": np.array(w)} for name, w in {"a": [0.2, 0.5], "b": [0.6, 0.5]}.items()}
    weights = weigh(SemiAnAgg(), {name: announce(s, selected=1) for name, s in sides.items()})
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights["a"] > weights["b"] > 0


def test_where_nothing_was_accepted_the_labelled_silos_carry_everything():
    announcements = {"labelled": announce(labelled=10), "other": announce({"similarity": np.full(2, np.nan)})}
    assert weigh(SemiAnAgg(), announcements) == {"labelled": 1.0, "other": 0.0}


def test_random_looking_models_share_the_unlabelled_half_evenly():
    announcements = {"labelled": announce(labelled=10)}
    announcements |= {name: announce({"similarity": np.ones(2)}, selected=1) for name in ("a", "b")}
    assert weigh(SemiAnAgg(), announcements) == {"labelled": 0.5, "a": 0.25, "b": 0.25}


@pytest.mark.parametrize("order", ["Paper", "Code"])
def test_a_silo_whose_images_all_have_labels_has_no_part_of_the_unlabelled_half(order):
    """It announces no similarity of any class, which the code's order would take for a similarity of 1."""
    labelled = announce({"similarity": np.full(2, np.nan)}, labelled=10, unlabelled=0)
    sides = {name: {"similarity": np.array(w)} for name, w in {"a": [0.2, 0.5], "b": [0.6, 0.5]}.items()}
    others = {name: announce(side, labelled=0, unlabelled=5, selected=5) for name, side in sides.items()}
    weights = weigh(SemiAnAgg(order=order), {"labelled": labelled, **others})
    assert weights["labelled"] == pytest.approx(0.5) and weights["a"] > weights["b"] > 0


@given(st.lists(st.tuples(*[st.floats(-1, 1) | st.just(math.nan)] * 2), min_size=1, max_size=6))
@pytest.mark.parametrize("order", ["Paper", "Code"])
def test_semianagg_weights_are_a_distribution(order, rows):
    announcements = {str(i): announce({"similarity": np.array(row)}, selected=1) for i, row in enumerate(rows)}
    weights = weigh(SemiAnAgg(order=order), announcements)
    assert all(w >= 0 for w in weights.values())
    assert sum(weights.values()) == pytest.approx(1.0)


def test_dvw_pools_the_evaluations_and_drops_one_of_the_wrong_form():
    announcements = {"a": announce({"validation": np.array([3, 10])}), "b": announce()}
    weights = weigh(Dvw(), announcements, a=[[1, 10], [[1, 0], [0, 1]], [-5, 2]], b=[])
    assert weights == {"a": 0.2, "b": 0.0}


@pytest.mark.parametrize("own_counts", [[10**15, 1], [11, 10]])
def test_dvw_more_right_than_all_is_the_fault_of_its_silo_alone(own_counts):
    weights = weigh(
        Dvw(),
        {"good": announce({"validation": np.array([3, 10])}), "bad": announce({"validation": np.array(own_counts)})},
    )
    assert weights["good"] == 1.0 and math.isnan(weights["bad"])


def test_dvw_an_evaluator_with_more_images_than_there_can_be_decides_no_more_than_three_of_four():
    """Ten silos score 0.8 on 50 images each; one says of 10^8 images that its own model is right and the others are wrong."""
    names = "abcdefghi"
    honest = [[40, 50]] * 8
    silos = {name: announce({"validation": np.array([40, 50])}) for name in names}
    liar = {"liar": announce({"validation": np.array([10**8, 10**8])})}
    weights = weigh(Dvw(), silos | liar, **{n: [*honest, [0, 10**8]] for n in names}, liar=[*honest, [40, 50]])
    assert weights["a"] == pytest.approx(0.8 / 4)
    assert weights["liar"] == pytest.approx((0.8 + 3) / 4)
    assert weights["liar"] / sum(weights.values()) < 0.35


def test_dvw_two_silos_of_unequal_size_pool_as_ever():
    silos = {"a": announce({"validation": np.array([90, 1000])}), "b": announce({"validation": np.array([1, 2])})}
    assert weigh(Dvw(), silos, a=[[1, 2]], b=[[500, 1000], [0, 0]]) == {"a": 91 / 1002, "b": 501 / 1002}


def test_dvw_counts_a_negative_score_as_nothing():
    worst = np.array([[0, 5], [5, 0]])
    assert weigh(Dvw(metric="MCC"), {"a": announce({"validation": worst})}) == {"a": 0.0}


def test_dvw_can_set_good_models_further_apart():
    announcements = {
        "good": announce({"validation": np.array([8, 10])}),
        "poor": announce({"validation": np.array([4, 10])}),
    }
    weights = weigh(Dvw(sharpening="3"), announcements)
    assert weights["good"] / weights["poor"] == pytest.approx(8)


@pytest.mark.parametrize(("factor", "weights"), [(1, [4.0, 3.0, 5.0]), (10, [40.0, 3.0, 32.0])])
def test_cbafed_can_count_labelled_images_several_times(factor, weights):
    silos = {"a": announce(labelled=4), "b": announce(labelled=0, selected=3), "c": announce(labelled=3, selected=2)}
    weighting = UsedCount(labelled_factor=factor)
    assert list(weigh(weighting, silos).values()) == weights
    assert weighting.weigher(of_classes(2)).most(7) == 7 * (factor + 1)


def test_barriers_and_evaluations():
    weighers = {kind: weighting().weigher(of_classes(2)) for kind, weighting in KINDS.items()}
    assert {kind for kind, weigher in weighers.items() if weigher.barrier} == {"fedAvgSemi", "semiAnAgg"}
    assert {kind for kind, weigher in weighers.items() if weigher.evaluated} == {"dvw"}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_scores_agree_with_scikit_learn(pairs):
    true, predicted = np.array(pairs).T
    assume(len(np.unique(pairs)) > 1)
    counts = np.zeros((4, 4), np.int64)
    np.add.at(counts, (true, predicted), 1)
    assert SCORES["MicroF1"](counts) == pytest.approx(metrics.accuracy_score(true, predicted))
    assert SCORES["MacroF1"](counts) == pytest.approx(
        metrics.f1_score(true, predicted, average="macro", zero_division=0)
    )
    assert SCORES["MCC"](counts) == pytest.approx(metrics.matthews_corrcoef(true, predicted), abs=1e-12)
    recalls = metrics.recall_score(true, predicted, labels=np.unique(true), average=None, zero_division=0)
    assert SCORES["BalancedAccuracy"](counts) == pytest.approx(recalls.mean())
    assert SCORES["GeometricMean"](counts) == pytest.approx(np.prod(recalls) ** (1 / len(recalls)))


def test_scores_of_nothing_are_zero():
    assert {name: score(np.zeros((3, 3), np.int64)) for name, score in SCORES.items()} == dict.fromkeys(SCORES, 0.0)

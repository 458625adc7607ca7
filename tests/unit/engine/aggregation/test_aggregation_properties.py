"""What holds of every weigher and every mean, whatever the silos say (methods reference, 9.2: numbers 11, 16 and 31)."""

from typing import Any

import numpy as np
import pytest
from classification_of import classes as of_classes
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorage.api.piece import PIECES
from anchorage.engine.aggregation import ContributionSum, weighted_mean
from anchorage.engine.aggregation.weigher import BaseWeigher
from anchorage.pieces.slots import Weighting
from anchorage.pieces.task.confusion import micro_f1
from anchorage.pieces.weighting.fedavg_semi import TwoHalves, normalised
from anchorage.pieces.weighting.semianagg import SemiAnAgg
from anchorage.pieces.weighting.sub_consensus import SubConsensus
from anchorage.transport.messages import Announcement, Evaluation
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

CLASSES = 3
LAYOUT = Layout.of([("w", "F64", (5,)), ("n", "I64", ())])
WEIGHTINGS = [*(kind() for kind in PIECES.of("weighting").values()), SemiAnAgg(order="Code")]

counts = st.integers(0, 500)
similarities = st.lists(st.floats(0, 1) | st.just(np.nan), min_size=CLASSES, max_size=CLASSES)
silos = st.lists(st.tuples(counts, counts, similarities, st.booleans()), min_size=1, max_size=6)


def model_of(seed: int) -> ModelBytes:
    draws = np.random.default_rng(seed)
    return ModelBytes.from_arrays(LAYOUT, {"w": draws.normal(size=5), "n": np.array(seed)})


def announced(announcements_drawn: list[tuple[int, int, list[float], bool]]) -> dict[str, Announcement]:
    announcements = {}
    for index, (labelled, selected, similarity, sends) in enumerate(announcements_drawn):
        samples = {"train": labelled + selected, "labelled": labelled, "selected": selected, "steps": selected}
        auxiliary = {"similarity": np.array(similarity), "validation": np.array([labelled, labelled + selected])}
        auxiliary["uncertainty"] = np.array([selected / 500])
        announcements[str(index)] = Announcement(
            "t", samples, auxiliary, {}, model_of(index).manifest if sends else None
        )
    return announcements


def weights_of(weigher: BaseWeigher, announcements: dict[str, Announcement], order: list[str]) -> dict[str, float]:
    updates = {s: model_of(int(s)) for s in order if announcements[s].update is not None}
    weigher.measure(updates, announcements, LAYOUT)
    scores = {s: [Evaluation("t", {"validation": np.array([int(s), 7])})] for s in order}
    return dict(weigher.weigh({s: announcements[s] for s in order}, scores))


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: w.name + getattr(w, "order", ""))
@settings(max_examples=25)
@given(announcements_drawn=silos, draw=st.randoms(use_true_random=False))
def test_shares_sum_to_one_and_the_order_of_silos_is_nothing(
    weighting: Weighting, announcements_drawn: Any, draw: Any
) -> None:
    weigher = weighting.weigher(of_classes(CLASSES))
    announcements = announced(announcements_drawn)
    names = list(announcements)
    weigher.choose(names, 1, 1)
    weights = weights_of(weigher, announcements, names)
    assert all(np.isfinite(w) and w >= 0 for w in weights.values())
    assert all(w == 0 for s, w in weights.items() if announcements[s].update is None)
    if any(a.update is not None for a in announcements.values()):  # all zero counts as uniform
        assert normalised(np.array(list(weights.values()))).sum() == pytest.approx(1)
    if isinstance(weighting, TwoHalves | SubConsensus) and any(weights.values()):
        assert sum(weights.values()) == pytest.approx(1), "these divide by themselves"
    updates = {s: model_of(int(s)) for s, a in announcements.items() if a.update is not None}
    terms = weigher.terms(updates, {s: weights[s] for s in updates})
    parts = {s: sum(weight for silo, _, weight in terms if silo == s) for s in updates}
    assert parts == pytest.approx({s: weights[s] for s in updates}), "an update of several models weighs no more"
    shuffled = draw.sample(names, len(names))
    reordered = weights_of(weigher, announcements, shuffled)
    assert reordered == pytest.approx(weights, rel=1e-9, abs=1e-12)


@settings(max_examples=25)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=7), st.randoms(use_true_random=False))
def test_a_mean_is_streamed_in_any_order_and_of_deltas_too(weights: list[float], draw: Any) -> None:
    models = [model_of(seed) for seed in range(len(weights))]
    mean = weighted_mean(models, weights, LAYOUT).arrays()["w"]
    plain = np.average([m.arrays()["w"] for m in models], axis=0, weights=weights)
    order = draw.sample(range(len(weights)), len(weights))
    shuffled = weighted_mean([models[i] for i in order], [weights[i] for i in order], LAYOUT).arrays()["w"]
    community = ContributionSum(LAYOUT)
    for i in order:
        community.commit(str(i), weights[i], models[i])
    streamed = community.model()
    assert streamed is not None
    base = model_of(99).arrays()["w"]
    deltas = [ModelBytes.from_arrays(LAYOUT, {"w": m.arrays()["w"] - base, "n": np.array(0)}) for m in models]
    for result in (mean, shuffled, streamed.arrays()["w"], base + weighted_mean(deltas, weights, LAYOUT).arrays()["w"]):
        np.testing.assert_allclose(result, plain, rtol=1e-9, atol=1e-12)


@settings(max_examples=25)
@given(st.lists(st.lists(counts, min_size=9, max_size=9), min_size=1, max_size=4))
def test_two_numbers_a_silo_are_as_good_as_its_confusion_matrix(rows: list[list[int]]) -> None:
    """Methods reference, 9.2, number 16: the product asks for correct and total alone."""
    matrices = [np.array(row).reshape(3, 3) for row in rows]
    pairs = np.array([(np.trace(m), m.sum()) for m in matrices])
    assert micro_f1(pairs.sum(0)) == micro_f1(np.sum(matrices, axis=0))

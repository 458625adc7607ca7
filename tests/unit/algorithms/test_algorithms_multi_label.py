"""Scores and losses of several findings per image: equal to scikit-learn where it is defined, absent where nothing can be said."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    roc_auc_score,
    roc_curve,
)

from anchorage.algorithms.binary_losses import masked_cross_entropy
from anchorage.algorithms.multi_label_metrics import (
    at_threshold,
    auroc,
    average_precision,
    best_threshold,
    exact_counts,
)
from anchorage.learning.model_hooks import Scored
from anchorage.pieces.task.multi_label import MultiLabel

TASK = MultiLabel(labels=("a", "b", "c"))


def drawn(seed: int, count: int = 80, digits: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(-1, 3, (count, 3)).astype(np.int8), rng.random((count, 3)).round(digits)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 8]))
def test_scores_are_those_of_scikit_learn(seed: int, digits: int) -> None:
    labels, probabilities = drawn(seed, digits=digits)
    assessed = TASK.assessment(Scored("test", labels, probabilities, np.arange(80)), np.random.default_rng(0))
    areas, precisions = [], []
    for place in range(3):
        known = (labels[:, place] == 0) | (labels[:, place] == 1)
        truth, given_probabilities = labels[known, place], probabilities[known, place]
        areas.append(roc_auc_score(truth, given_probabilities))
        precisions.append(average_precision_score(truth, given_probabilities))
        counts = exact_counts(labels, probabilities, place)
        assert auroc(counts) == pytest.approx(areas[-1], abs=1e-9)
        assert average_precision(counts) == pytest.approx(precisions[-1], abs=1e-9)
        finding = assessed.findings[place]
        decided = given_probabilities >= finding.threshold
        (tn, fp), (fn, tp) = confusion_matrix(truth, decided, labels=[0, 1])
        assert (finding.recall, finding.specificity) == pytest.approx((tp / (tp + fn), tn / (tn + fp)), abs=1e-9)
        assert finding.f1 == pytest.approx(f1_score(truth, decided), abs=1e-9)
        assert finding.brier == pytest.approx(brier_score_loss(truth, given_probabilities), abs=1e-9)
    finding = TASK.evaluate(labels, probabilities)
    assert finding["macro_auroc"] == pytest.approx(np.mean(areas), abs=1e-9) and finding["macro_auroc_labels"] == 3
    assert finding["mean_average_precision"] == pytest.approx(np.mean(precisions), abs=1e-9)


def test_thresholds_have_the_greatest_sum_of_sensitivity_and_specificity() -> None:
    labels, probabilities = drawn(3)
    positive = labels[:, 0] == 1
    threshold = best_threshold(positive, probabilities[:, 0])
    others, hits, _ = roc_curve(positive, probabilities[:, 0])
    counts = at_threshold(positive, probabilities[:, 0] >= threshold)
    assert counts["recall"] + counts["specificity"] - 1 == pytest.approx((hits - others).max(), abs=1e-12)
    assert threshold not in probabilities[:, 0]
    assert best_threshold(np.array([True, True]), np.array([0.1, 0.9])) is None


def test_what_cannot_be_said_is_absent() -> None:
    labels = np.array([[1, 0, -1], [1, 0, 2], [1, 0, -1]], np.int8)
    probabilities = np.full((3, 3), 0.5)
    assert TASK.evaluate(labels, probabilities) == {
        "mean_average_precision": 1.0,
        "mean_average_precision_labels": 1.0,
        "brier": 0.25,
        "calibration_error": 0.0,
    }
    assert TASK.evaluate(np.full((3, 3), 2, np.int8), probabilities) == {}
    rng = np.random.default_rng(0)
    assessment = TASK.assessment(Scored("test", labels, probabilities, np.arange(3)), rng)
    first, second, third = assessment.findings
    assert assessment.macro_auroc is None and [f.auroc for f in assessment.findings] == [None] * 3
    assert (first.recall, first.specificity, first.f1) == (1.0, None, 1.0)
    assert (second.recall, second.specificity, second.average_precision) == (None, 0.0, None)
    assert (third.recall, third.f1, third.brier, third.uncertain, third.unknown) == (None, None, None, 1, 2)
    assert [f.threshold_by for f in assessment.findings] == ["Default"] * 3
    assert "because there are no validation images" in assessment.concerns[0].predicate


def test_thresholds_come_of_the_validation_images() -> None:
    labels, probabilities = drawn(1)
    validation = Scored("validation", labels, probabilities, np.arange(80))
    other = Scored("test", *drawn(2), np.arange(80))
    assessment = TASK.assessment(other, np.random.default_rng(0), validation)
    known = (labels[:, 1] == 0) | (labels[:, 1] == 1)
    assert assessment.findings[1].threshold == best_threshold(labels[known, 1] == 1, probabilities[known, 1])
    assert {f.threshold_by for f in assessment.findings} == {"Validation"} and not assessment.concerns


def test_intervals_are_by_patient() -> None:
    """The same images ten times over say no more where they are of the same patients, and more where they are of others."""
    labels, probabilities = drawn(5, 40, 8)
    patients = np.arange(40)

    def width(groups: np.ndarray, times: int) -> float:
        scored = Scored("test", np.tile(labels, (times, 1)), np.tile(probabilities, (times, 1)), groups)
        interval = TASK.assessment(scored, np.random.default_rng(0)).macro_auroc
        assert interval is not None and interval.low < interval.value < interval.high
        return interval.high - interval.low

    once = width(patients, 1)
    assert width(np.tile(patients, 10), 10) == pytest.approx(once, abs=1e-12)
    assert width(np.arange(400), 10) < once / 2


def test_tallies_add_up_to_the_scores_of_all_up_to_a_bins_width() -> None:
    labels, probabilities = drawn(7, 600, 2)
    probabilities += 0.001  # no probability is on the edge of a bin, and equal ones share one
    probabilities = probabilities.clip(max=0.999)
    one, other = TASK.tally(labels[:250], probabilities[:250]), TASK.tally(labels[250:], probabilities[250:])
    both = {name: one[name] + other[name] for name in one}
    tally = TASK.tally(labels, probabilities)
    assert all(np.array_equal(both[name], tally[name]) for name in tally) and TASK.images(both) == 600
    exact = TASK.evaluate(labels, probabilities)
    for name, score in TASK.scores(both).items():
        assert score == pytest.approx(exact[name], abs=0.01)


def test_rare_findings_of_a_tally_are_held_back() -> None:
    labels = np.zeros((40, 3), np.int8)
    labels[:20, 0], labels[:4, 1], labels[:, 2] = 1, 1, -1
    tally = TASK.tally(labels, np.random.default_rng(0).random((40, 3)))
    sent = TASK.suppressed(tally, 5)
    assert sent["score_counts"].sum((0, 2)).tolist() == [40, 0, 0] and sent["scored_images"] == 40
    assert TASK.is_sound(sent, 40) and tally["score_counts"].sum() == 80
    assert TASK.scores(sent)["macro_auroc_labels"] == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {**t, "score_counts": -t["score_counts"]},
        lambda t: {**t, "score_counts": 2 * t["score_counts"]},
        lambda t: {**t, "scored_images": np.array(0)},
        lambda t: {**t, "score_counts": t["score_counts"][:, :2]},
        lambda t: {"scored_images": t["scored_images"]},
    ],
)
def test_a_tally_that_cannot_be_is_refused(change) -> None:
    tally = TASK.tally(np.ones((9, 3), np.int8), np.full((9, 3), 1.0))
    assert TASK.is_sound(tally, 9) and not TASK.is_sound(tally, 8)
    assert not TASK.is_sound(change(tally), 9)


def test_only_known_entries_teach() -> None:
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, 0, -1], [0, 2, -1], [1, 1, -1], [-1, 0, -1], [0, -1, -1], [1, 2, -1]], dtype=torch.int8)
    loss = masked_cross_entropy(logits, labels)
    known = [(i, j) for i in range(6) for j in range(3) if labels[i, j] in (0, 1)]
    by_hand = sum(
        -torch.log(torch.sigmoid(logits[i, j] if labels[i, j] == 1 else -logits[i, j])) for i, j in known
    ) / len(known)
    assert loss.item() == pytest.approx(by_hand.item(), abs=1e-12)
    loss.backward()
    assert bool((logits.grad[:, 2] == 0).all()) and bool((logits.grad[labels == 2] == 0).all())
    assert bool((logits.grad[(labels == 0) | (labels == 1)] != 0).all())


def test_a_batch_without_a_known_entry_has_a_loss_and_a_gradient_of_zero() -> None:
    logits = torch.full((2, 3), 50.0, requires_grad=True)
    loss = masked_cross_entropy(logits, torch.full((2, 3), -1, dtype=torch.int8))
    loss.backward()
    assert loss.item() == 0.0 and bool((logits.grad == 0).all())


def test_a_round_and_an_assessment_are_drawn() -> None:
    from matplotlib.figure import Figure

    labels, probabilities = drawn(4)
    labels[:, 2] = -1
    charts = [
        *TASK.tally_charts({"score_counts": TASK.tally(labels, probabilities)["score_counts"]}),
        *TASK.charts(TASK.assessment(Scored("test", labels, probabilities, np.arange(80)), np.random.default_rng(0))),
    ]
    assert [chart.name for chart in charts] == ["reliability", "roc"] * 2
    assert "2 of 3 findings" in charts[1].says and "of 2 of 3 findings" in charts[3].says
    for chart in charts:
        axes = Figure().subplots()
        chart.draw(axes)
        assert axes.lines
    assert not [*TASK.tally_charts({"scored_images": np.array(3)})]

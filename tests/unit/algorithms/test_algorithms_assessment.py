"""A model in full: every figure against scikit-learn or a case by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, roc_auc_score

from anchorage.algorithms.assessment import (
    BINS,
    LARGEST_WORK,
    assess,
    brier_score,
    expected_calibration_error,
    reliability,
    resampled_aucs,
    roc_points,
    specificity_per_class,
)

NAMES = ("naevus", "melanoma", "keratosis")


def drawn_case(n: int = 240, seed: int = 3) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, n, p=[0.6, 0.3, 0.1]).astype(np.int64)
    scores = np.round(rng.gamma(1.0, size=(n, 3)) + 1.5 * np.eye(3)[labels], 1) + 0.1  # rounded: some are equal
    return labels, scores / scores.sum(1, keepdims=True)


def test_specificity_is_the_recall_of_the_rest() -> None:
    labels, probabilities = drawn_case()
    predicted = probabilities.argmax(1)
    counts = confusion_matrix(labels, predicted)
    by_hand = [np.mean(predicted[labels != c] != c) for c in range(3)]
    np.testing.assert_allclose(specificity_per_class(counts), by_hand)
    assert np.isnan(specificity_per_class(np.array([[4, 1], [0, 0]]))[0])


def test_calibration_of_four_images_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.92, 0.08], [0.35, 0.65], [0.5, 0.5]])
    labels = np.array([0, 1, 1, 0])
    bins = reliability(labels, probabilities)
    assert len(bins) == BINS and [entry.images for entry in bins if entry.images] == [1, 1, 2]
    last = bins[13]  # 13/15 to 14/15
    assert last.low < 0.9 < 0.92 <= last.high
    assert (last.confidence, last.accuracy) == (pytest.approx(0.91), 0.5)
    assert expected_calibration_error(bins) == pytest.approx((2 * 0.41 + 0.35 + 0.5) / 4)
    assert brier_score(labels, probabilities) == pytest.approx((0.02 + 2 * 0.92**2 + 2 * 0.35**2 + 0.5) / 4)


@pytest.mark.parametrize("value", [0.2, 1.0, 1 / 3, 1.0000000000000002])
def test_a_bin_holds_its_upper_end(value: float) -> None:
    probabilities = np.array([[value, *[(1 - value) / 9] * 9]])
    (filled_bin,) = (filled_bin for filled_bin in reliability(np.array([0]), probabilities) if filled_bin.images)
    assert filled_bin.low < value <= filled_bin.high + 1e-12


def test_resampled_areas_are_those_of_scikit_learn() -> None:
    labels, probabilities = drawn_case(60)
    members = [np.flatnonzero(labels == c) for c in range(3)]
    aucs = resampled_aucs(labels, probabilities, 5, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    drawn = np.hstack(
        [member_rows[rng.integers(0, len(member_rows), (5, len(member_rows)))] for member_rows in members]
    )
    for row, chosen in zip(aucs, drawn, strict=True):
        areas = [roc_auc_score(labels[chosen] == c, probabilities[chosen, c]) for c in range(3)]
        np.testing.assert_allclose(row, areas, rtol=1e-12)


def test_intervals_hold_the_figure_and_narrow_with_more_images() -> None:
    few, many = (assess("test", NAMES, *drawn_case(n), np.random.default_rng(0)) for n in (60, 3000))
    assert few.resamples == many.resamples == 1000
    for result in (few, many):
        for area in (result.macro_auroc, *(scores.auroc for scores in result.classes)):
            assert area is not None and area.low < area.value < area.high
    narrow, wide = many.macro_auroc, few.macro_auroc
    assert narrow is not None and wide is not None
    assert narrow.high - narrow.low < (wide.high - wide.low) / 3


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    truth = roc_auc_score(*binormal(200_000, 0))
    covered = 0
    for seed in range(1, 101):
        labels, scores = binormal(200, seed)
        areas = resampled_aucs(labels, np.column_stack([1 - scores, scores]), 300, np.random.default_rng(seed))[:, 1]
        low, high = np.percentile(areas, [2.5, 97.5])
        covered += bool(low <= truth <= high)
    assert 88 <= covered <= 100


def binormal(n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 4 == 0).astype(np.int64)
    return labels, 1 / (1 + np.exp(-(rng.normal(size=n) + labels)))


def test_equal_seeds_give_equal_assessments() -> None:
    first, second = (assess("test", NAMES, *drawn_case(), np.random.default_rng(7)) for _ in range(2))
    assert first == second


def test_a_class_without_images_has_no_scores() -> None:
    labels, probabilities = drawn_case()
    labelled = labels != 2
    assessment = assess("validation", NAMES, labels[labelled], probabilities[labelled], np.random.default_rng(0))
    missing = assessment.classes[2]
    assert (missing.images, missing.recall, missing.auroc) == (0, None, None)
    assert missing.specificity is not None and missing.precision == 0.0
    assert assessment.macro_auroc is not None and sum(map(sum, assessment.counts["confusion"])) == labelled.sum()


def test_images_of_one_class_have_no_curve() -> None:
    assessment = assess("test", NAMES, np.zeros(4, np.int64), np.full((4, 3), 1 / 3), np.random.default_rng(0))
    assert assessment.macro_auroc is None and assessment.resamples == 0
    assert assessment.classes[0].recall == 1.0 and assessment.classes[0].specificity is None


def test_very_many_images_have_no_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, probabilities = drawn_case()
    monkeypatch.setattr("anchorage.algorithms.assessment.LARGEST_WORK", 99 * probabilities.size)
    assert assess("test", NAMES, labels, probabilities, np.random.default_rng(0)).resamples == 0
    monkeypatch.setattr("anchorage.algorithms.assessment.LARGEST_WORK", 101 * probabilities.size)
    assert assess("test", NAMES, labels, probabilities, np.random.default_rng(0)).resamples == 101
    assert LARGEST_WORK // (1_000_000 * 10) >= 100


def test_points_of_a_roc_curve_enclose_its_area() -> None:
    rng = np.random.default_rng(0)
    positive, scores = rng.random(60) < 0.4, rng.random(60).round(2)
    points = np.array(roc_points(positive, scores))
    assert points[0].tolist() == [0, 0] and points[-1].tolist() == [1, 1]
    assert np.trapezoid(points[:, 1], points[:, 0]) == pytest.approx(roc_auc_score(positive, scores), abs=1e-4)


def test_points_of_a_long_roc_curve_are_bounded() -> None:
    rng = np.random.default_rng(0)
    points = np.array(roc_points(rng.random(5000) < 0.5, rng.random(5000)))
    assert len(points) == 100 and (np.diff(points, axis=0) >= 0).all()

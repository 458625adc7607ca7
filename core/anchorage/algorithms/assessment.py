"""A model in full on labelled images: every class, intervals, and calibration."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anchorage.algorithms.classification_metrics import (
    auc_per_class,
    classification_metrics,
    confusion_matrix,
    precision_per_class,
    recall_per_class,
    roc_counts,
)
from anchorage.api.model_card import Assessment, Calibration, ClassScores, Concern, Interval, ReliabilityBin
from anchorage.api.verdict import PAGE

BINS = 15
RESAMPLES = 1000
FEWEST_RESAMPLES = 100
LARGEST_WORK = 10**9
"""Resamples times images times classes; beyond, fewer resamples are drawn, and none rather than fewer than `FEWEST_RESAMPLES`."""
MOST_CLASSES_SHOWN = 100
"""Classes up to which the confusion matrix and ROC curves are part of an assessment."""
ONE_CLASS = 0.9
"""Share of the images from which on one class is predicted for nearly all of them."""
HARDLY_RECOGNISED = 0.25
"""Mean recall of the other classes up to which that is a failure, and not how the images are."""
GOOD_RANKING = 0.7
"""Mean area under the ROC curves from which on a model tells classes apart whatever it decides for; 0.5 is chance."""
ROC_POINTS = 100
"""Points of a class's ROC curve at most."""
_AT_ONCE = 1 << 20


def specificity_per_class(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return TN / (TN + FP) of each class against the rest, float64 [C]; NaN where every image is of the class."""
    others = confusion.sum() - confusion.sum(1)
    wrong = confusion.sum(0) - np.diag(confusion)
    return np.where(others > 0, 1 - wrong / np.maximum(others, 1), np.nan)


def reliability(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> tuple[ReliabilityBin, ...]:
    """Sort images by the probability of their predicted class into `BINS` ranges of equal width, open below.

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        True classes.
    probabilities : ndarray of float64, shape [n, C]
        Rows sum to 1.
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    edges = np.linspace(0, 1, BINS + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, BINS - 1)
    bins = []
    for index in range(BINS):
        inside = place == index
        means = [
            float(np.clip(values[inside].mean(), 0, 1)) if inside.any() else None for values in (confidence, right)
        ]
        low, high = float(edges[index]), float(edges[index + 1])
        count = int(inside.sum())
        bins.append(ReliabilityBin(low=low, high=high, images=count, confidence=means[0], accuracy=means[1]))
    return tuple(bins)


def expected_calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return the mean distance between confidence and accuracy, weighted by images (Guo et al., ICML 2017, eq. 3)."""
    total = sum(reliability_bin.images for reliability_bin in bins)
    gaps = [
        reliability_bin.images * abs((reliability_bin.accuracy or 0.0) - (reliability_bin.confidence or 0.0))
        for reliability_bin in bins
    ]
    return float(sum(gaps) / total)


def brier_score(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """Return the mean squared distance of probabilities from the truth, summed over classes: 0 to 2 (Brier, 1950, eq. 2)."""
    truth = np.eye(probabilities.shape[1])[labels]
    return float(((probabilities - truth) ** 2).sum(1).mean())


def resampled_aucs(
    labels: NDArray[np.int64], probabilities: NDArray[np.float64], resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the one-vs-rest areas of bootstrap resamples, float64 [resamples, C]; NaN for a class without images, or of which all are.

    Images are drawn with replacement within each class (stratified, as pROC's default: Robin et al., BMC Bioinformatics 2011), so that no
    resample lacks a class. The area is the Mann-Whitney statistic: the share of pairs in which the class's image has the higher
    probability, ties counting half.

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        True classes.
    probabilities : ndarray of float64, shape [n, C]
        Softmax outputs.
    resamples : int
        How many.
    rng : Generator
        Draws the images.
    """
    n, classes = probabilities.shape
    members = [np.flatnonzero(labels == c) for c in range(classes)]
    ranked = [_rank(probabilities[:, c]) for c in range(classes)]
    areas = np.full((resamples, classes), np.nan)
    step = max(1, _AT_ONCE // n)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        chosen = np.hstack(
            [
                class_rows[rng.integers(0, len(class_rows), (size, len(class_rows)))]
                for class_rows in members
                if len(class_rows)
            ]
        )
        drawn = np.bincount((chosen + n * np.arange(size)[:, None]).ravel(), minlength=size * n).reshape(size, n)
        for c, (order, first) in enumerate(ranked):
            if 0 < len(members[c]) < n:
                weights, positive = drawn[:, order], labels[order] == c
                above = np.add.reduceat(weights * positive, first, axis=1)
                below = np.add.reduceat(weights * ~positive, first, axis=1)
                pairs = (above * (below.cumsum(1) - below / 2)).sum(1)
                areas[start : start + size, c] = pairs / (len(members[c]) * (n - len(members[c])))
    return areas


def roc_points(positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> tuple[tuple[float, float], ...]:
    """Return the corners of a ROC curve from (0, 0) to (1, 1) as (1 - specificity, recall), at most `ROC_POINTS` of them, evenly chosen.

    Parameters
    ----------
    positive : ndarray of bool, shape [n]
        Which images are of the class; some are, and some are not.
    scores : ndarray of float64, shape [n]
        Probabilities of the class.
    """
    above, below = (np.cumsum(counts) for counts in roc_counts(positive, scores))
    corner = np.r_[True, (np.diff(above, 2) != 0) | (np.diff(below, 2) != 0), True][-len(above) :]
    recall, others = np.r_[0, above[corner] / above[-1]], np.r_[0, below[corner] / below[-1]]
    chosen = np.linspace(0, len(recall) - 1, min(len(recall), ROC_POINTS)).round().astype(int)
    return tuple((round(float(others[i]), 5), round(float(recall[i]), 5)) for i in chosen)


def _rank(scores: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the ascending order of scores, and where each group of equal ones begins in it."""
    order = np.argsort(scores, kind="stable")
    return order, np.flatnonzero(np.diff(scores[order], prepend=np.nan) != 0)


def assess(
    part: Literal["test", "validation"],
    names: Sequence[str],
    labels: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    rng: np.random.Generator,
) -> Assessment:
    """Score probabilities in full; intervals are 95 % percentile bootstrap intervals (Efron and Tibshirani, 1993, chapter 13).

    Parameters
    ----------
    part : str
        Which images they are.
    names : sequence of str
        Names of the C classes.
    labels : ndarray of int64, shape [n]
        True classes, n >= 1.
    probabilities : ndarray of float64, shape [n, C]
        Softmax outputs, finite.
    rng : Generator
        Draws the resamples.
    """
    confusion = confusion_matrix(labels, probabilities.argmax(1), len(names))
    areas = auc_per_class(labels, probabilities)
    resamples = min(RESAMPLES, LARGEST_WORK // probabilities.size)
    if resamples < FEWEST_RESAMPLES or np.isnan(areas).all():
        resamples = 0
    drawn = resampled_aucs(labels, probabilities, resamples, rng)
    columns = (recall_per_class(confusion), specificity_per_class(confusion), precision_per_class(confusion))
    recall, specificity, precision = ([None if np.isnan(x) else float(x) for x in column] for column in columns)
    known = ~np.isnan(areas)
    bins = reliability(labels, probabilities)
    macro_auroc = _interval(float(areas[known].mean()), drawn[:, known].mean(1)) if known.any() else None
    shown = tuple(tuple(map(int, row)) for row in confusion) if len(names) <= MOST_CLASSES_SHOWN else None
    return Assessment(
        part=part,
        images=len(labels),
        metrics=classification_metrics(labels, probabilities),
        macro_auroc=macro_auroc,
        resamples=resamples,
        classes=tuple(
            ClassScores(
                name=name,
                images=int(confusion[c].sum()),
                recall=recall[c],
                specificity=specificity[c],
                precision=precision[c],
                auroc=_interval(float(areas[c]), drawn[:, c]) if known[c] else None,
                roc=roc_points(labels == c, probabilities[:, c])
                if known[c] and len(names) <= MOST_CLASSES_SHOWN
                else (),
            )
            for c, name in enumerate(names)
        ),
        calibration=Calibration(
            expected_error=expected_calibration_error(bins), brier=brier_score(labels, probabilities), bins=bins
        ),
        counts={"confusion": shown} if shown is not None else {},
        concerns=tuple(_one_class(part, names, confusion, recall, macro_auroc)),
    )


def _one_class(
    part: str,
    names: Sequence[str],
    confusion: NDArray[np.int64],
    recall: Sequence[float | None],
    area: Interval | None,
) -> Iterator[Concern]:
    """Yield that one class is predicted for nearly all images, where the others are hardly recognised."""
    predicted, images = confusion.sum(0), int(confusion.sum())
    most = int(predicted.argmax())
    others = [value for c, value in enumerate(recall) if c != most and value is not None]
    if not others or predicted[most] < ONE_CLASS * images or sum(others) / len(others) > HARDLY_RECOGNISED:
        return
    predicate = f"predicts {names[most]} for {predicted[most]} of {images} {part} images"
    if area is not None and area.value >= GOOD_RANKING:
        predicate += f", though AUROC is {area.value:.2f}: the ranking is good, the decision is not"
    elif area is not None:
        predicate += f", and AUROC is {area.value:.2f}: it hardly tells the classes apart"
    yield Concern(kind="OneClass", predicate=predicate, page=f"{PAGE}#one-class-for-nearly-every-image")


def _interval(value: float, drawn: NDArray[np.float64]) -> Interval:
    """Return the interval of a figure; without resamples it is all that the figure can be."""
    low, high = np.percentile(drawn, [2.5, 97.5]) if len(drawn) else (0.0, 1.0)
    return Interval(value=value, low=float(np.clip(low, 0, 1)), high=float(np.clip(high, 0, 1)))

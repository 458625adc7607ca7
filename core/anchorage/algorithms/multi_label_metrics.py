"""Scores of several findings per image, each by itself, over the images of which it is known. What cannot be said is absent, and never 0.

Labels are int8 [n, L]: 1 and 0 are known, 2 (uncertain) and -1 (unknown) count in no score.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from anchorage.algorithms.classification_metrics import area_under_roc, roc_counts

BINS = 100
"""Ranges of equal width of a probability in the histograms by which silos score a model."""
CALIBRATION_BINS = 15

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Positives and negatives of each of k scores, highest score first, [k] each."""


def known_of(
    labels: NDArray[np.int8], probabilities: NDArray[np.float64], place: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which known images have a finding, bool [k], and their probabilities of it, float64 [k]."""
    known = (labels[:, place] == 0) | (labels[:, place] == 1)
    return labels[known, place] == 1, probabilities[known, place]


def histograms(labels: NDArray[np.int8], probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count known images by probability, int64 [2, L, `BINS`]: those without each finding, then those with it; bins ascend.

    Parameters
    ----------
    labels : ndarray of int8, shape [n, L]
        Entries.
    probabilities : ndarray of float64, shape [n, L]
        From 0 to 1.
    """
    outputs = labels.shape[1]
    places = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1) + BINS * np.arange(outputs)
    counts = [np.bincount(places[labels == value], minlength=outputs * BINS) for value in (0, 1)]
    return np.stack(counts).reshape(2, outputs, BINS).astype(np.int64)


def counts_of(tally: NDArray[np.int64], place: int) -> Counts:
    """Return the counts of a finding in `histograms`, highest bin first."""
    return tally[1, place, ::-1], tally[0, place, ::-1]


def exact_counts(labels: NDArray[np.int8], probabilities: NDArray[np.float64], place: int) -> Counts:
    """Return the counts of a finding by each probability that occurs, highest first; empty without a known image."""
    return roc_counts(*known_of(labels, probabilities, place))


def auroc(counts: Counts) -> float | None:
    """Return the area under the ROC curve (Mann-Whitney); None without a positive or without a negative."""
    above, below = counts
    return area_under_roc(above, below) if above.any() and below.any() else None


def average_precision(counts: Counts) -> float | None:
    """Return the sum over scores of the gain in recall times precision, ties taken together; None without a positive."""
    above, below = counts
    if not above.any():
        return None
    cumulative_counts = above.cumsum() + below.cumsum()
    return float((above / above.sum() * above.cumsum() / np.maximum(cumulative_counts, 1)).sum())


def ranking_scores(counts: list[Counts]) -> Mapping[str, float]:
    """Return the mean area and mean average precision over the findings that have one, with the number of these; absent where none has.

    Parameters
    ----------
    counts : list of Counts
        Of each finding.
    """
    label_means: dict[str, float] = {}
    for name, scores in (
        ("macro_auroc", [auroc(each) for each in counts]),
        ("mean_average_precision", [average_precision(each) for each in counts]),
    ):
        known = [score for score in scores if score is not None]
        if known:
            label_means |= {name: float(np.mean(known)), f"{name}_labels": float(len(known))}
    return label_means


def best_threshold(positive: NDArray[np.bool_], probabilities: NDArray[np.float64]) -> float | None:
    """Return the threshold of the greatest sensitivity + specificity (Youden, Cancer 1950), the highest of equally good ones.

    It lies halfway to the next lower probability, so that rounding moves no image over it. None without a positive or without a negative.

    Parameters
    ----------
    positive : ndarray of bool, shape [k]
        Which images have the finding.
    probabilities : ndarray of float64, shape [k]
        Of the finding.
    """
    if not positive.any() or positive.all():
        return None
    above, below = roc_counts(positive, probabilities)
    gain = above.cumsum() * below.sum() - below.cumsum() * above.sum()
    scores = np.unique(probabilities)[::-1]
    place = int(gain.argmax())
    lower = scores[place + 1] if place + 1 < len(scores) else scores[place]
    return float((scores[place] + lower) / 2)


def at_threshold(positive: NDArray[np.bool_], decided: NDArray[np.bool_]) -> Mapping[str, float | None]:
    """Return sensitivity, specificity, precision and F1 of decisions, bool [k]; None where the denominator is 0."""
    hits, misses = int((positive & decided).sum()), int((positive & ~decided).sum())
    alarms, others = int((~positive & decided).sum()), int((~positive & ~decided).sum())

    def ratio(part: int, total: int) -> float | None:
        return part / total if total else None

    return {
        "recall": ratio(hits, hits + misses),
        "specificity": ratio(others, others + alarms),
        "precision": ratio(hits, hits + alarms),
        "f1": ratio(2 * hits, 2 * hits + misses + alarms),
    }


def calibration_bins(
    positive: NDArray[np.bool_], probabilities: NDArray[np.float64]
) -> list[tuple[float, float, int, float | None, float | None]]:
    """Sort known entries by probability into `CALIBRATION_BINS` ranges of equal width, open below.

    Returns
    -------
    list of tuple
        Both ends, number of entries, their mean probability, and the share that is positive; None where there is no entry.
    """
    edges = np.linspace(0, 1, CALIBRATION_BINS + 1)
    place = np.clip(np.searchsorted(edges, probabilities, side="left") - 1, 0, CALIBRATION_BINS - 1)
    bins = []
    for index in range(CALIBRATION_BINS):
        inside = place == index
        count = int(inside.sum())
        mean = float(np.clip(probabilities[inside].mean(), 0, 1)) if count else None
        share = float(positive[inside].mean()) if count else None
        bins.append((float(edges[index]), float(edges[index + 1]), count, mean, share))
    return bins


def calibration_error(positive: NDArray[np.bool_], probabilities: NDArray[np.float64]) -> float:
    """Return the mean distance between probability and share of positives over ranges, weighted by entries; k >= 1."""
    bins = calibration_bins(positive, probabilities)
    return float(sum(count * abs((share or 0.0) - (mean or 0.0)) for _, _, count, mean, share in bins) / len(positive))


def multi_label_metrics(labels: NDArray[np.int8], probabilities: NDArray[np.float64]) -> Mapping[str, float]:
    """Return `ranking_scores`, Brier score and calibration error over the known entries; empty without one.

    Parameters
    ----------
    labels : ndarray of int8, shape [n, L]
        Entries.
    probabilities : ndarray of float64, shape [n, L]
        From 0 to 1.
    """
    known = (labels == 0) | (labels == 1)
    if not known.any():
        return {}
    positive, known_probabilities = labels[known] == 1, probabilities[known]
    return {
        **ranking_scores([exact_counts(labels, probabilities, place) for place in range(labels.shape[1])]),
        "brier": float(((known_probabilities - positive) ** 2).mean()),
        "calibration_error": calibration_error(positive, known_probabilities),
    }


def resampled_areas(
    labels: NDArray[np.int8],
    probabilities: NDArray[np.float64],
    groups: NDArray[np.int64],
    resamples: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return each finding's area in bootstrap resamples of patients, float64 [resamples, L]; NaN where a resample has not both kinds.

    Patients are drawn with replacement, each with all its images, because images of one patient are alike (Field and Welsh, JRSS B 2007).

    Parameters
    ----------
    labels, probabilities
        As of `multi_label_metrics`.
    groups : ndarray of int64, shape [n]
        Number of each image's patient, from 0.
    resamples : int
        How many.
    rng : Generator
        Draws the patients.
    """
    outputs, patients = labels.shape[1], int(groups.max()) + 1
    areas = np.full((resamples, outputs), np.nan)
    sorted_of = []
    for place in range(outputs):
        known = np.flatnonzero((labels[:, place] == 0) | (labels[:, place] == 1))
        order = known[np.argsort(-probabilities[known, place], kind="stable")]
        first = np.flatnonzero(np.diff(probabilities[order, place], prepend=np.nan) != 0)
        sorted_of.append((order, first))
    for draw in range(resamples):
        weights = np.bincount(rng.integers(0, patients, patients), minlength=patients)[groups]
        for place, (order, first) in enumerate(sorted_of):
            positive = labels[order, place] == 1
            above = np.add.reduceat(weights[order] * positive, first) if len(order) else np.zeros(0, np.int64)
            below = np.add.reduceat(weights[order] * ~positive, first) if len(order) else np.zeros(0, np.int64)
            if above.any() and below.any():
                areas[draw, place] = area_under_roc(above, below)
    return areas

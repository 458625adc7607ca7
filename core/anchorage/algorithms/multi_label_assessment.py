"""A model of several findings in full on labelled images: every finding at its threshold, intervals by patient, and calibration."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from anchorage.algorithms.assessment import FEWEST_RESAMPLES, LARGEST_WORK, MOST_CLASSES_SHOWN, RESAMPLES, roc_points
from anchorage.algorithms.multi_label_metrics import (
    at_threshold,
    auroc,
    average_precision,
    best_threshold,
    calibration_bins,
    calibration_error,
    exact_counts,
    known_of,
    multi_label_metrics,
    resampled_areas,
)
from anchorage.api.model_card import Assessment, Calibration, Concern, FindingScores, Interval, ReliabilityBin
from anchorage.api.verdict import PAGE
from anchorage.learning.model_hooks import Scored

DEFAULT_THRESHOLD = 0.5
"""Probability from which on a finding is called present of which no validation image chose another one."""


def thresholds_of(validation: Scored | None, outputs: int) -> list[float | None]:
    """Return the threshold of each finding by the validation images (`best_threshold`); None where they do not say."""
    if validation is None:
        return [None] * outputs
    return [best_threshold(*known_of(validation.labels, validation.activated, place)) for place in range(outputs)]


def assess_findings(
    names: Sequence[str], scored: Scored, rng: np.random.Generator, validation: Scored | None
) -> Assessment:
    """Score findings in full; intervals are 95 % percentile bootstrap intervals over patients.

    Parameters
    ----------
    names : sequence of str
        Names of the L findings.
    scored : Scored
        Labels int8 [n, L], probabilities [n, L], and whose images they are.
    rng : Generator
        Draws the resamples.
    validation : Scored or None
        What chooses the thresholds.
    """
    labels, probabilities = scored.labels, scored.activated
    resamples = min(RESAMPLES, LARGEST_WORK // probabilities.size)
    resamples = resamples if resamples >= FEWEST_RESAMPLES else 0
    drawn = resampled_areas(labels, probabilities, scored.groups, resamples, rng)
    chosen = thresholds_of(validation, len(names))
    findings = tuple(_finding(name, scored, place, chosen[place], drawn[:, place]) for place, name in enumerate(names))
    areas = [finding_scores.auroc for finding_scores in findings]
    known = [place for place, area in enumerate(areas) if area is not None]
    macro = None
    if known:
        of_draws = drawn[:, known]
        counted = of_draws[~np.isnan(of_draws).all(1)]
        macro = _interval(
            float(np.mean([area.value for area in areas if area is not None])),
            np.nanmean(counted, 1) if len(counted) else counted[:, 0],
        )
    entries = (labels == 0) | (labels == 1)
    return Assessment(
        part=scored.part,
        images=len(labels),
        metrics={**multi_label_metrics(labels, probabilities), **_whole_images(labels, probabilities, findings)},
        macro_auroc=macro,
        resamples=resamples if known else 0,
        findings=findings,
        calibration=_calibration(labels[entries] == 1, probabilities[entries]) if entries.any() else None,
        concerns=tuple(_default_thresholds(findings, validation)),
    )


def _finding(name: str, scored: Scored, place: int, chosen: float | None, drawn: NDArray[np.float64]) -> FindingScores:
    labels, probabilities = scored.labels, scored.activated
    positive, known_probabilities = known_of(labels, probabilities, place)
    counts = exact_counts(labels, probabilities, place)
    area, threshold = auroc(counts), DEFAULT_THRESHOLD if chosen is None else chosen
    both = area is not None and labels.shape[1] <= MOST_CLASSES_SHOWN
    return FindingScores(
        name=name,
        positives=int(positive.sum()),
        negatives=int((~positive).sum()),
        uncertain=int((labels[:, place] == 2).sum()),
        unknown=int((labels[:, place] == -1).sum()),
        auroc=None if area is None else _interval(area, drawn[~np.isnan(drawn)]),
        average_precision=average_precision(counts),
        threshold=threshold,
        threshold_by="Default" if chosen is None else "Validation",
        brier=float(((known_probabilities - positive) ** 2).mean()) if len(known_probabilities) else None,
        calibration_error=calibration_error(positive, known_probabilities) if len(known_probabilities) else None,
        roc=roc_points(positive, known_probabilities) if both else (),
        **at_threshold(positive, known_probabilities >= threshold),
    )


def _whole_images(
    labels: NDArray[np.int8], probabilities: NDArray[np.float64], findings: Sequence[FindingScores]
) -> dict[str, float]:
    """Return exact match and Hamming loss at the thresholds, over the images of which every finding is known; empty without one."""
    fully_labelled = ((labels == 0) | (labels == 1)).all(1)
    if not fully_labelled.any():
        return {}
    wrong = (probabilities[fully_labelled] >= [finding_scores.threshold for finding_scores in findings]) != (
        labels[fully_labelled] == 1
    )
    return {"exact_match": float((~wrong.any(1)).mean()), "hamming": float(wrong.mean())}


def _calibration(positive: NDArray[np.bool_], probabilities: NDArray[np.float64]) -> Calibration:
    bins = calibration_bins(positive, probabilities)
    return Calibration(
        expected_error=calibration_error(positive, probabilities),
        brier=float(((probabilities - positive) ** 2).mean()),
        bins=tuple(
            ReliabilityBin(low=low, high=high, images=count, confidence=mean, accuracy=share)
            for low, high, count, mean, share in bins
        ),
    )


def _default_thresholds(findings: Sequence[FindingScores], validation: Scored | None) -> Iterator[Concern]:
    """Yield that findings have no threshold of their own, which decides wrongly of rare ones."""
    default_names = ", ".join(
        finding_scores.name for finding_scores in findings if finding_scores.threshold_by == "Default"
    )
    if default_names:
        why = "there are no validation images" if validation is None else "the validation images have not both kinds"
        predicate = f"calls {default_names} present from a probability of {DEFAULT_THRESHOLD} on, because {why}: rare findings are missed so"
        page = f"{PAGE}#thresholds-without-validation-images"
        yield Concern(kind="DefaultThreshold", predicate=predicate, page=page)


def _interval(value: float, drawn: NDArray[np.float64]) -> Interval:
    """Return the interval of a figure; without resamples it is all that the figure can be."""
    low, high = np.percentile(drawn, [2.5, 97.5]) if len(drawn) else (0.0, 1.0)
    return Interval(value=value, low=float(np.clip(low, 0, 1)), high=float(np.clip(high, 0, 1)))

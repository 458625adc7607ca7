"""Scores from a confusion matrix of counts, shape [C, C], rows are true classes. 0/0 is 0 (methods reference, 6.14, KAT-E1, E5)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.integer[Any]] | NDArray[np.floating[Any]]


def micro_f1(counts: Counts) -> float:
    """Pooled accuracy, which micro-F1 equals where each image has one label; also from (correct, total), shape [2]."""
    correct, total = counts if counts.ndim == 1 else (np.trace(counts), counts.sum())
    return float(correct / total) if total else 0.0


def macro_f1(counts: Counts) -> float:
    """Mean of 2 TP / (2 TP + FP + FN) over the classes that are true or predicted somewhere."""
    return _mean_ratio(2 * np.diag(counts), counts.sum(0) + counts.sum(1))


def balanced_accuracy(counts: Counts) -> float:
    """Mean recall over the classes that have images."""
    return _mean_ratio(np.diag(counts), counts.sum(1))


def geometric_mean(counts: Counts) -> float:
    """Geometric mean of the recalls of the classes that have images; 0 as soon as one class has no hit."""
    present = counts.sum(1) > 0
    recalls = np.diag(counts)[present] / counts.sum(1)[present]
    return float(np.exp(np.log(recalls).mean())) if len(recalls) and recalls.all() else 0.0


def mcc(counts: Counts) -> float:
    """Matthews correlation of true and predicted classes, from -1 to 1."""
    true, predicted = counts.sum(1).astype(np.float64), counts.sum(0).astype(np.float64)
    total = true.sum()
    covariance = np.trace(counts) * total - true @ predicted
    spread = np.sqrt(total**2 - true @ true) * np.sqrt(total**2 - predicted @ predicted)
    return float(covariance / spread) if spread else 0.0


SCORES: Mapping[str, Callable[[Counts], float]] = {
    "MicroF1": micro_f1,
    "MacroF1": macro_f1,
    "BalancedAccuracy": balanced_accuracy,
    "GeometricMean": geometric_mean,
    "MCC": mcc,
}
"""The scores by the names of `Weighting.metric`."""


def _mean_ratio(part: NDArray[Any], total: NDArray[Any]) -> float:
    """Mean of part over whole, over the entries whose whole is not 0."""
    counted = total > 0
    return float((part[counted] / total[counted]).mean()) if counted.any() else 0.0

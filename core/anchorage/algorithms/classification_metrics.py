"""Scores of a model with the conventions of the methods reference, section 1."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def confusion_matrix(labels: NDArray[np.int64], predictions: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
    """Count predictions, int64 [C, C]: rows are true classes.

    Parameters
    ----------
    labels, predictions : ndarray of int64, shape [n]
        Classes in 0..C-1.
    num_classes : int
        Classes C.
    """
    counts = np.bincount(labels * num_classes + predictions, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes).astype(np.int64)


def recall_per_class(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return recall, float64 [C]; NaN for a class without test images."""
    truths = confusion.sum(1)
    return np.where(truths > 0, np.diag(confusion) / np.maximum(truths, 1), np.nan)


def precision_per_class(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return precision, float64 [C]: 0 for a class that was never predicted, NaN for one that is neither true nor predicted anywhere."""
    predicted, truths = confusion.sum(0), confusion.sum(1)
    return np.where(predicted + truths > 0, np.diag(confusion) / np.maximum(predicted, 1), np.nan)


def auc_per_class(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the area under each one-vs-rest ROC curve, float64 [C]; NaN for a class with no test image or no other class's.

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        True classes.
    probabilities : ndarray of float64, shape [n, C]
        Softmax outputs.
    """
    areas = np.full(probabilities.shape[1], np.nan)
    for c in range(len(areas)):
        positive = labels == c
        if positive.any() and not positive.all():
            above, below = roc_counts(positive, probabilities[:, c])
            areas[c] = area_under_roc(above, below)
    return areas


def area_under_roc(above: NDArray[np.int64], below: NDArray[np.int64]) -> float:
    """Return the area under a ROC curve: the share of pairs of a positive and a negative that are ranked right, ties counting half.

    Parameters
    ----------
    above, below : ndarray of int64, shape [k]
        Positives and negatives of each score, highest score first; there are some of both.
    """
    pairs = (above * (2 * below.sum() - 2 * below.cumsum() + below)).sum()
    return float(pairs / (2 * above.sum() * below.sum()))


def roc_counts(positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count images of a class and other images of each score, highest score first: two int64 [k] for k different scores.

    Their cumulative sums are a ROC curve. Scikit-learn, whose import takes a second and 100 MB, has the same.

    Parameters
    ----------
    positive : ndarray of bool, shape [n]
        Which images are of the class; some are, and some are not.
    scores : ndarray of float64, shape [n]
        Probabilities of the class, finite.
    """
    different, of = np.unique(-scores, return_inverse=True)
    counts = np.stack([np.bincount(of[chosen], minlength=len(different)) for chosen in (positive, ~positive)])
    return counts[0].astype(np.int64), counts[1].astype(np.int64)


def classification_metrics(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> Mapping[str, float]:
    """Return accuracy, balanced accuracy (macro recall), macro precision, macro AUC and loss (mean cross entropy in nats).

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        True classes, n >= 1.
    probabilities : ndarray of float64, shape [n, C]
        Softmax outputs, finite.

    Returns
    -------
    mapping of str to float
        ``macro_auc`` is left out where no class has one.
    """
    confusion = confusion_matrix(labels, probabilities.argmax(1), probabilities.shape[1])
    areas = auc_per_class(labels, probabilities)
    chosen = probabilities[np.arange(len(labels)), labels]
    metrics = {
        "accuracy": float(np.trace(confusion) / len(labels)),
        "balanced_accuracy": float(np.nanmean(recall_per_class(confusion))),
        "macro_precision": float(np.nanmean(precision_per_class(confusion))),
        "loss": float(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).mean()),
    }
    return metrics if np.isnan(areas).all() else {**metrics, "macro_auc": float(np.nanmean(areas))}

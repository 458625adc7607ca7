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
    from sklearn.metrics import roc_auc_score  # a second to import, and only evaluation needs it

    areas = np.full(probabilities.shape[1], np.nan)
    for c in range(len(areas)):
        positive = labels == c
        if positive.any() and not positive.all():
            areas[c] = roc_auc_score(positive, probabilities[:, c])
    return areas


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

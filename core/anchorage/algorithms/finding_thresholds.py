"""From which probabilities on unknown findings of an image are taken as present, and up to which as absent."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fit_thresholds(labels: NDArray[np.int8], probabilities: Floats, right: float, wrong: float) -> Floats:
    """Return thresholds by validation images, float64 [2, L]: up to the first a finding is absent, from the second on it is present.

    The second is the lowest from which on the share `right` of the images has the finding, the first the highest up to which at most the share
    `wrong` has it; infinite where no threshold does.

    Parameters
    ----------
    labels : ndarray of int8, shape [n, L]
        Entries; only 0 and 1 count.
    probabilities : ndarray of float64, shape [n, L]
        Of the findings.
    right, wrong : float
        Shares, 0 to 1.
    """
    thresholds = np.empty((2, labels.shape[1]))
    for place in range(labels.shape[1]):
        known = (labels[:, place] == 0) | (labels[:, place] == 1)
        positive, known_probabilities = labels[known, place] == 1, probabilities[known, place]
        thresholds[0, place] = -_lowest(-known_probabilities, ~positive, 1 - wrong)
        thresholds[1, place] = _lowest(known_probabilities, positive, right)
    return thresholds


def _lowest(scores: Floats, right: NDArray[np.bool_], share: float) -> float:
    """Return the lowest score from which on so large a share is right; infinite where there is none."""
    order = np.argsort(-scores, kind="stable")
    scores, right = scores[order], right[order]
    last = np.append(scores[1:] != scores[:-1], True)[: len(scores)]
    enough = np.flatnonzero(last & (right.cumsum() >= share * np.arange(1, len(right) + 1) - 1e-9))
    return float(scores[enough[-1]]) if len(enough) else np.inf


def by_shares(probabilities: Floats, unknown: NDArray[np.bool_], expected: Floats) -> Floats:
    """Return thresholds from which on as many unknown entries of each finding are present as are expected, float64 [L]; infinite for none.

    Parameters
    ----------
    probabilities : ndarray of float64, shape [n, L]
        Of the findings.
    unknown : ndarray of bool, shape [n, L]
        Entries that are guessed.
    expected : ndarray of float64, shape [L]
        Positives among them; rounded.
    """
    thresholds = np.full(unknown.shape[1], np.inf)
    for place, count in enumerate(np.rint(expected).astype(np.int64)):
        ranked_probabilities = np.sort(probabilities[unknown[:, place], place])[::-1]
        if min(count, len(ranked_probabilities)) > 0:
            thresholds[place] = ranked_probabilities[min(count, len(ranked_probabilities)) - 1]
    return thresholds


def few_negatives(probabilities: Floats, unknown: NDArray[np.bool_], high: Floats, low: Floats, each: int) -> Floats:
    """Lower thresholds of absence until there are at most `each` negatives for a positive: the least probable ones; minus infinity for none.

    Parameters
    ----------
    probabilities, unknown
        As of `by_shares`.
    high, low : ndarray of float64, shape [L]
        From which on findings are present, and up to which they are absent.
    each : int
        Negatives for a positive.
    """
    thresholds = np.full(len(low), -np.inf)
    for place in range(len(low)):
        ranked_probabilities = np.sort(probabilities[unknown[:, place], place])
        negatives = ranked_probabilities[(ranked_probabilities <= low[place]) & (ranked_probabilities < high[place])]
        most = each * int((ranked_probabilities >= high[place]).sum())
        if min(most, len(negatives)) > 0:
            thresholds[place] = negatives[min(most, len(negatives)) - 1]
    return thresholds

"""Which pseudo-labels are accepted, where one fixed threshold for all classes is not what decides."""

from dataclasses import dataclass

import torch
from torch import Tensor

_PASSES, _STILL = 200, 1e-6
"""Most passes of expectation maximisation, and the largest change of a share that counts as none."""


@dataclass(frozen=True)
class Acceptance:
    """How a silo labels its images in one round."""

    threshold: float | Tensor
    """Score from which on a label is accepted: one for all classes, or each class's own, float64 [C]."""

    shift: Tensor | None = None
    """What is added to the logits, float [C]; None: nothing."""

    def shift_logits(self, logits: Tensor) -> Tensor:
        """Return logits [n, C] as they label."""
        return logits if self.shift is None else logits + self.shift

    def labels(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels of logits [n, C], int64 [n], and whether they are accepted, bool [n]."""
        confidence, labels = self.shift_logits(logits).softmax(1).max(1)
        return labels, reaches(confidence, labels, self.threshold)


def reaches(scores: Tensor, labels: Tensor, threshold: float | Tensor) -> Tensor:
    """Return whether each score [n] is at least the threshold of its label, bool [n]; one threshold is compared in the scores' dtype."""
    least = threshold[labels] if isinstance(threshold, Tensor) else threshold
    reached: Tensor = scores >= least
    return reached


def validated_thresholds(scores: Tensor, labels: Tensor, precision: float) -> Tensor:
    """Return each class's lowest threshold above which so many guesses are right, float64 [C].

    Infinite for a class that reaches it at no threshold; that of all images together for a class that no image is guessed to be of.

    Parameters
    ----------
    scores : Tensor of float, shape [n, C]
        Of labelled images; an image's guess is its best class.
    labels : Tensor of int64, shape [n]
        True classes.
    precision : float
        Least share of right ones among the guesses that are accepted.
    """
    best, guesses = scores.double().max(1)
    right = guesses == labels
    together = _lowest(best, right, precision)
    thresholds = [together] * scores.shape[1]
    for c in torch.unique(guesses).tolist():
        of_class = guesses == c
        thresholds[c] = _lowest(best[of_class], right[of_class], precision)
    return torch.tensor(thresholds, dtype=torch.float64)


def _lowest(scores: Tensor, right: Tensor, precision: float) -> float:
    order = torch.argsort(scores, descending=True, stable=True)
    scores, right = scores[order], right[order]
    shares = right.double().cumsum(0) / torch.arange(1, len(right) + 1, dtype=torch.float64, device=right.device)
    last = torch.cat([scores[1:] != scores[:-1], scores.new_ones(min(len(scores), 1), dtype=torch.bool)])
    enough = (last & (shares >= precision)).nonzero()
    return float(scores[enough[-1, 0]]) if len(enough) else float("inf")


def class_shares(probabilities: Tensor, prior: Tensor) -> Tensor:
    """Return the class shares of images, float64 [C] of sum 1, by expectation maximisation (Saerens et al. 2002).

    As if there were one image of each class more, so that no share is 0.

    Parameters
    ----------
    probabilities : Tensor of float, shape [n, C]
        By a model that was trained on classes of the shares `prior`.
    prior : Tensor of float64, shape [C]
        Above 0, of sum 1.
    """
    ratios = probabilities.double() / prior
    shares = prior
    for _ in range(_PASSES):
        each = ratios * shares
        before, shares = shares, (each / each.sum(1, keepdim=True)).sum(0) + 1
        shares = shares / shares.sum()
        if float((shares - before).abs().max()) < _STILL:
            break
    return shares


def shift_to(logits: Tensor, shares: Tensor) -> Tensor:
    """Return what to add to logits for their mean probabilities to be given class shares, float64 [C]; -inf for a class of share 0.

    Each pass adds the logarithm of what is wanted over what there is, which never moves away from the solution (Sinkhorn's scaling).

    Parameters
    ----------
    logits : Tensor of float, shape [n, C]
        Of images.
    shares : Tensor of float64, shape [C]
        From 0, of sum 1.
    """
    wanted, class_logits = shares.to(logits.device), logits.double()
    shift = wanted.log()
    for _ in range(_PASSES):
        mean_shares = (class_logits + shift).softmax(1).mean(0)
        if float((mean_shares - wanted).abs().max()) < _STILL:
            break
        shift = torch.where(
            wanted > 0, shift + (wanted / mean_shares.clamp_min(torch.finfo(torch.float64).tiny)).log(), shift
        )
    return shift

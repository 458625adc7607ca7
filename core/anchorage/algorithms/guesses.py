"""Guessed classes of images without labels: probabilities that are corrected to the class shares of a silo, and what they count as.

A silo knows its shares from its records, or estimates them by expectation maximisation: of its images' densities (Saerens, Latinne, Decaestecker
2002, "Adjusting the outputs of a classifier to new a priori probabilities"), or of its predictions, by how often the classifier takes each class for
each other one on labelled images (Lipton, Wang, Smola 2018, "Detecting and correcting for label shift with black box predictors"). That needs no
densities that are right, only images that look alike. All in float64.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from anchorage.algorithms.calibration import shift_to
from anchorage.algorithms.classification_metrics import auc_per_class
from anchorage.algorithms.moments import ABSENT

Counting = Literal["Hard", "Soft"]
"""What a guess counts as: one image of its best class, or a share of an image of every class."""

PASSES = 20
"""Passes of expectation maximisation over a silo's images."""
UNSEEN = 0.5
"""Images that every pair of a true and a predicted class has beside those that were seen."""
SMOOTHING = 0.1
"""Share of even shares in every estimate, so that no class is given up."""


def correct_logits(scores: Tensor, temperature: float, shares: Tensor | None) -> Tensor:
    """Return logits [n, C] of guesses whose probabilities fit the shares of the images.

    Parameters
    ----------
    scores : Tensor of float, shape [n, C]
        Log densities of images in each class, but for a constant of each image; a logarithm of class shares does not matter where shares are known.
    temperature : float
        Above 0; scores are divided by it.
    shares : Tensor of float64, shape [C], or None
        Known shares, to which mean probabilities are made equal, also those of classes that the classifier saw no image of. None: they are
        estimated of the densities.
    """
    if shares is not None:
        scaled = unseen_as_others(scores.double()) / temperature
        return scaled + shift_to(scaled, shares)
    scaled = scores.double() / temperature
    return scaled + estimated_shares(scaled, torch.ones(len(scaled))).log()


def unseen_as_others(scores: Tensor) -> Tensor:
    """Return scores [n, C] in which a class that the classifier saw no image of has the mean of the others' scores.

    Such a class wins where no other one fits; shifts to known shares make up for the constant. Silos with other shares of these classes then tell
    them apart in the rounds that follow.
    """
    unseen = (scores <= ABSENT / 2).all(0)
    if not bool(unseen.any()) or bool(unseen.all()):
        return scores
    return torch.where(unseen, scores[:, ~unseen].mean(1, keepdim=True), scores)


def estimated_shares(densities: Tensor, weights: Tensor) -> Tensor:
    """Return class shares, float64 [C] of sum 1, by expectation maximisation from even shares.

    Parameters
    ----------
    densities : Tensor of float64, shape [n, C]
        Logarithms of how likely each observation is in each class.
    weights : Tensor of float, shape [n]
        How often each was made.
    """
    classes, often = densities.shape[1], weights.to(densities) / weights.sum()
    shares = densities.new_full((classes,), 1 / classes)
    for _ in range(PASSES):
        mean_probabilities = often @ (densities + shares.log()).softmax(1)
        shares = (1 - SMOOTHING) * mean_probabilities + SMOOTHING / classes
    return shares


def confusion(predicted: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return how often an image of each class is taken for each other one, float64 [C, C], rows of sum 1; as if half an image more were of each pair.

    Parameters
    ----------
    predicted, labels : Tensor of int64, shape [n]
        Of labelled images that the classifier did not learn from.
    num_classes : int
        Classes C.
    """
    pairs = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    counts = pairs.view(num_classes, num_classes).double() + UNSEEN
    return counts / counts.sum(1, keepdim=True)


def measured_shares(predicted: Tensor, confused: Tensor) -> Tensor:
    """Return class shares of images by their predictions, int64 [n], and the classifier's `confusion`, [C, C]; see `estimated_shares`."""
    often = torch.bincount(predicted, minlength=len(confused))
    return estimated_shares(confused.double().log().T, often)


def members(guesses: Tensor, labels: Tensor, fewest: int, counting: Counting) -> Tensor:
    """Return how much of each image counts to each class, float64 [n, C]; rows of sum 1, or all 0.

    A class of fewer than `fewest` images in all is left out, the smallest first, and its images count as what they are guessed to be of the others:
    its sums would show a few images. With fewer images than that in all there is nothing.

    Parameters
    ----------
    guesses : Tensor of float64, shape [n, C]
        Logits of all images.
    labels : Tensor of int64, shape [n]
        Known classes, -1 where there is none.
    fewest : int
        Least number of images of a class.
    counting : Counting
        What a guess counts as.
    """
    classes = guesses.shape[1]
    finite = guesses.clamp_min(
        torch.finfo(torch.float64).min
    )  # a class of share 0 is still better than one that is left out
    allowed = torch.ones(classes, dtype=torch.bool, device=guesses.device)
    while bool(allowed.any()):
        among = finite.masked_fill(~allowed, -torch.inf)
        assignments = functional.one_hot(among.argmax(1), classes).double() if counting == "Hard" else among.softmax(1)
        known = (labels >= 0) & allowed[labels]
        assignments[known] = functional.one_hot(labels[known], classes).double()
        totals = assignments.sum(0)
        few = (totals > 0) & (totals < fewest)
        if not bool(few.any()):
            return assignments
        allowed[torch.where(few, totals, torch.inf).argmin()] = False
    return torch.zeros_like(guesses, dtype=torch.float64)


@dataclass(frozen=True)
class Comparison:
    """Balanced accuracies of candidates on the same labelled images; the first one is what stays if no other is better."""

    accuracies: tuple[float, ...]
    """Mean recall of the classes that occur."""
    chosen: int
    """The best candidate of those whose macro AUC is not below the first one's, where it is better than the first one by more than the standard
    error of their difference; else 0."""


def compare(scores: Tensor, labels: Tensor) -> Comparison:
    """Compare candidates by their scores.

    Of ten candidates on seventy images one is often better by more than the standard error by chance alone; the macro AUC, which ranks the images
    instead of counting those that are right, varies less. So a candidate has to be no worse by it, too.

    The standard error is of the paired difference: the variances within classes of whether one is right and the other is not, each over the class's
    number of images. A class with one image has the largest variance that there can be.

    Parameters
    ----------
    scores : Tensor of float, shape [K, n, C]
        Logits by each candidate.
    labels : Tensor of int64, shape [n]
        True classes, at least one.
    """
    right = (scores.argmax(2) == labels).double()
    members = [labels == c for c in torch.unique(labels).tolist()]
    recalls = torch.stack([right[:, rows].mean(1) for rows in members])
    accuracies = recalls.mean(0)
    better = [k for k in range(1, len(scores)) if accuracies[k] > accuracies[0]]
    least = _macro_auc(scores[0], labels) if better else math.nan
    better = [k for k in better if not _macro_auc(scores[k], labels) < least]
    best = max(better, key=accuracies.tolist().__getitem__, default=0)
    difference = right[best] - right[0]
    variances = [
        difference[rows].var() / int(rows.sum()) if int(rows.sum()) > 1 else torch.ones(()) for rows in members
    ]
    error = float(torch.stack([v.double() for v in variances]).sum().sqrt()) / len(members)
    chosen = best if float(accuracies[best] - accuracies[0]) > error else 0
    return Comparison(tuple(accuracies.tolist()), chosen)


def _macro_auc(scores: Tensor, labels: Tensor) -> float:
    """Return the mean of the classes' areas; NaN, which is not below any other, where all images are of one class."""
    areas = auc_per_class(labels.numpy(), scores.double().softmax(1).numpy())
    known = areas[~np.isnan(areas)]
    return float(known.mean()) if len(known) else math.nan

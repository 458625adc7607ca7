"""FlexMatch: thresholds per class that follow how well each class is learnt (METHODS.md 6.5)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def class_thresholds(counts: Tensor, total: int, threshold: float) -> Tensor:
    """Return the threshold of every class, ``tau * beta / (2 - beta)`` with the warm-up form of beta.

    Parameters
    ----------
    counts : Tensor of int64, shape [C]
        Images whose latest confident class is c.
    total : int
        All images; ``counts.sum()`` gives the form without warm-up.
    threshold : float
        Fixed threshold tau.

    Returns
    -------
    Tensor of float64, shape [C]
        All 0 before any image was confident.
    """
    rest = total - counts.sum()
    beta = counts.double() / torch.maximum(counts.max(), rest).clamp(min=1)
    return threshold * beta / (2 - beta)


class Curriculum:
    """The latest class predicted with confidence at least tau, per image; -1 where there was none.

    Parameters
    ----------
    latest : ndarray of int64, shape [n]
        Where to start.
    num_classes : int
        Classes C.
    threshold : float
        Fixed threshold tau.
    device : torch.device
        Where predictions are made.
    """

    def __init__(self, latest: NDArray[np.int64], num_classes: int, threshold: float, device: torch.device) -> None:
        self.threshold = threshold
        self.latest = torch.from_numpy(latest.copy()).to(device)
        self._classes = torch.arange(num_classes, device=device)
        self.counts = self._count(self.latest)

    def _count(self, latest: Tensor) -> Tensor:
        return (latest[:, None] == self._classes).sum(0)

    def masks(self, confidence: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return which images of a batch are trained on, and which are confident.

        Parameters
        ----------
        confidence : Tensor of float, shape [n]
            Largest probability.
        labels : Tensor of int64, shape [n]
            Its class.

        Returns
        -------
        used : Tensor of bool, shape [n]
            Confidence >= the class's threshold: enters the loss.
        confident : Tensor of bool, shape [n]
            Confidence >= tau: counts for the curriculum and as selected.
        """
        thresholds = class_thresholds(self.counts, len(self.latest), self.threshold)
        return confidence >= thresholds[labels].to(confidence.dtype), confidence >= self.threshold

    def update(self, indices: Tensor, labels: Tensor, confident: Tensor) -> None:
        """Take the confident predictions of a batch of different images over."""
        before = self.latest[indices]
        after = torch.where(confident, labels, before)
        self.counts = self.counts + self._count(after) - self._count(before)
        self.latest[indices] = after

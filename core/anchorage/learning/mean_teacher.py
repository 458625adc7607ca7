"""RSCFed's loss on unlabelled images: a slowly moving teacher's sharpened labels, by squared error (METHODS.md 6.10)."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.method import PseudoLabels
from anchorage.learning.draws import Draws
from anchorage.learning.local_training import Batching
from anchorage.learning.models import Network
from anchorage.learning.moving_average import MovingAverage
from anchorage.learning.views import Views

SLOWEST = 0.999
"""Largest decay of the teacher."""


def teacher_decay(step: int) -> float:
    """Return how much of the teacher stays at its step 0, 1, ... (KAT-C2): nothing at first, so that it begins as the student."""
    return min(1 - 1 / (step + 1), SLOWEST)


def sharpened(probabilities: Tensor, temperature: float) -> Tensor:
    """Return rows that sum to one, of the probabilities [n, C] to the power of 1 / temperature (KAT-C2)."""
    powers = probabilities ** (1 / temperature)
    return powers / powers.sum(1, keepdim=True)


def squared_error(logits: Tensor, targets: Tensor, divisor: int) -> Tensor:
    """Return the squared differences of probabilities from targets, logits and targets [n, C], summed and divided."""
    return (logits.softmax(1) - targets).square().sum() / divisor


class TeacherLosses:
    """Yields the losses of a silo's unlabelled images; both views are weak.

    Parameters
    ----------
    network : Network
        The model in training.
    teacher : MovingAverage
        Who labels.
    views : Views
        All images of the silo.
    indices : ndarray of int64, shape [n]
        Those without a label.
    pseudo_labels : PseudoLabels
        Temperature, factor and divisor.
    """

    def __init__(
        self,
        network: Network,
        teacher: MovingAverage,
        views: Views,
        indices: NDArray[np.int64],
        pseudo_labels: PseudoLabels,
    ) -> None:
        self._network, self._teacher, self._views, self._indices = network, teacher, views, indices
        self._temperature, self._weight = float(pseudo_labels.temperature), float(pseudo_labels.weight)
        self._nominal = pseudo_labels.divisor == "BatchSize"

    def losses(self, batching: Batching, draws: Draws) -> Iterator[Tensor]:
        """Yield the loss of each batch."""
        augmentation = draws.torch("augmentation-unlabelled")
        for positions in batching.positions(len(self._indices), draws.numpy("batches-unlabelled")):
            indices = self._views.to_device(self._indices[positions])
            with torch.no_grad():
                probabilities = self._teacher.network(self._views.weak(indices, augmentation)).softmax(1)
                targets = sharpened(probabilities, self._temperature)
            logits = self._network(self._views.weak(indices, augmentation))
            divisor = batching.size if self._nominal else len(positions)
            yield self._weight * squared_error(logits, targets, divisor)

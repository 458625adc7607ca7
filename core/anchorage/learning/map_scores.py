"""Scores of networks that give maps: images go through in batches whose maps fit into memory, and only what the task scores by is kept."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.learning.data.labels import Labels
from anchorage.learning.model_hooks import TaskHooks
from anchorage.learning.models import Network
from anchorage.learning.views import EVALUATION_BATCH, Views

_PIXELS = 1 << 20
"""Of a batch, each with an output for each class."""


PIXELS = (1.0, 1.0)
"""Distances of neighbouring pixels of an image, in pixels."""


def scored_maps(
    network: Network,
    views: Views,
    task: TaskHooks,
    indices: NDArray[np.int64],
    labels: Labels,
    *,
    in_full: bool = False,
) -> tuple[NDArray[np.float64], float, bool]:
    """Return what a task scores a network in eval mode by, of images as they are.

    Parameters
    ----------
    network : Network
        Gives maps.
    views : Views
        All images of a party.
    task : TaskHooks
        The task.
    indices : ndarray of int64, shape [n]
        Which images.
    labels : ndarray, shape [n, ...]
        Their labels.
    in_full : bool
        Whether for an assessment.

    Returns
    -------
    compared : ndarray of float64, shape [n, ...]
        Joined results of `TaskHooks.compared`.
    loss : float
        The task's loss, the mean over the images of that of their batches; 0 of no image.
    finite : bool
        Whether all outputs are.
    """
    size = max(1, min(EVALUATION_BATCH, _PIXELS // max(1, labels[:1].size)))
    spacing = PIXELS if in_full else None
    compared = [task.compared(labels[:0], labels[:0], spacing)]
    total, finite = 0.0, True
    with torch.no_grad():
        for start in range(0, len(indices), size):
            logits: Tensor = network(views.plain(views.to_device(indices[start : start + size])))
            own = labels[start : start + size]
            total += float(task.loss(logits.double(), views.to_device(own))) * len(own)
            finite = finite and bool(logits.isfinite().all())
            compared.append(task.compared(own, task.maps(logits).cpu().numpy(), spacing))
    return np.concatenate(compared), total / max(1, len(indices)), finite

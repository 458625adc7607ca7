"""Scores of networks that give maps: images go through in batches whose maps fit into memory, and only what the task scores by is kept."""

from typing import Any

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


def scored_maps(
    network: Network, views: Views, task: TaskHooks, indices: NDArray[np.int64], labels: Labels, side: int
) -> tuple[NDArray[Any], float, bool]:
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
    side : int
        Height and width of the images.

    Returns
    -------
    scored : ndarray, shape [n, ...]
        Joined results of `TaskHooks.scored`.
    loss : float
        The task's loss, the mean over the images of that of their batches; 0 of no image.
    finite : bool
        Whether all outputs are.
    """
    size = max(1, min(EVALUATION_BATCH, _PIXELS // side**2))
    scored: list[NDArray[Any]] = []
    total, finite = 0.0, True
    with torch.no_grad():
        for start in range(0, len(indices), size):
            logits: Tensor = network(views.plain(views.to_device(indices[start : start + size])))
            known = views.to_device(labels[start : start + size])
            total += float(task.loss(logits.double(), known)) * len(known)
            finite = finite and bool(logits.isfinite().all())
            scored.append(task.scored(task.activated(logits)))
    joined = np.concatenate(scored) if scored else np.empty((0, side, side), np.uint8)
    return joined, total / max(1, len(indices)), finite

"""SSIL-CDM: labels that make up for the silo's class shares, or for those of all labels (METHODS.md 6.12)."""

import numpy as np
import torch
from torch import Tensor

from anchorage.learning.local_work import RoundWork, Work
from anchorage.learning.two_heads import RAREST, AdjustedLosses

ESTIMATE = "shares/estimate"
"""Name of the estimate of the class shares in the silo's kept state, float64 [C]."""


def by_two_heads(work: RoundWork) -> Work:
    """Return the adjusted losses beside the supervised ones."""
    images, pseudo, classes = work.images, work.run.method.pseudo_labels, work.run.model.num_classes
    batching, device = work.batching(), images.views.device
    start = work.kept.get(ESTIMATE, np.full(classes, 1 / classes))
    losses = AdjustedLosses(
        work.network,
        work.copy_received(),
        images.views,
        images.unlabelled,
        float(pseudo.threshold),
        _prior(work),
        torch.from_numpy(np.array(start)).to(device),
    )
    together, steps = work.beside_labelled(losses.losses(batching, work.draws), batching)
    return Work(
        together,
        steps,
        work.counts(),
        lambda: losses.selected,
        work.label_counts,
        lambda: {ESTIMATE: losses.estimate.cpu().numpy()},
    )


def _prior(work: RoundWork) -> Tensor | None:
    """Return the shares that labels make up for, float64 [C]; None for the silo's own estimate."""
    adjustment, classes = work.run.method.pseudo_labels.adjustment, work.run.model.num_classes
    device = work.images.views.device
    if adjustment == "Labelled":
        return work.received_side("prior")["prior"].clamp(min=RAREST)
    if adjustment == "None":
        return torch.full((classes,), 1 / classes, dtype=torch.float64, device=device)
    known = work.images.labels[work.images.labelled]
    if not len(known):
        return None
    shares = np.bincount(known, minlength=classes) / len(known)
    return torch.from_numpy(np.maximum(shares, RAREST)).to(device)

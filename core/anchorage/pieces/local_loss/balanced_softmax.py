"""Balanced softmax: labels learnt as if the silo's classes were equally frequent (methods reference, 6.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from anchorage.api.piece import piece
from anchorage.pieces.slots import LocalLoss

if TYPE_CHECKING:
    from anchorage.learning.local_training import Labelled, Loss


@piece("balancedSoftmax")
class BalancedSoftmax(LocalLoss):
    """Cross entropy with logits shifted by the logarithm of the silo's class shares (Ren et al. 2020)."""

    resumes: ClassVar[bool] = True

    def loss(self, data: Labelled, num_classes: int) -> Loss:
        """Return the mean balanced softmax over the silo's own class counts."""
        import torch

        from anchorage.learning.losses import balanced_softmax, log_prior

        counts = torch.from_numpy(np.bincount(data.labels, minlength=num_classes))
        prior = log_prior(counts.double()).float().to(data.views.device)
        return lambda logits, labels: balanced_softmax(logits, labels, prior)

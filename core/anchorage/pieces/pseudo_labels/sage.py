"""SAGE: labels of the model in training, corrected by the received one where the two are unlike in confidence (methods reference, N5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.pseudo_labels.consistency import Consistency, ConsistencyLosses, confident_labels

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.algorithms.calibration import Acceptance
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound
    from anchorage.learning.views import Views

HALF_AT = 0.05
"""Gap of confidence at which both models' labels count alike."""


@piece("sage")
class Sage(Consistency):
    """Labels by the model in training, corrected by the received model (SAGE).

    Weak views are labelled by the model in training and by the received one, both in eval mode. Where the first is confident, the target is
    a mixture of the two labels, the more the received model's the further apart their confidences are; else it is the received model's.
    """

    def consistency(self, silo_round: SiloRound) -> SageLosses:
        """Return the losses of the unlabelled images."""
        return SageLosses(silo_round, self.seen(silo_round), self.acceptance(silo_round))


class SageLosses(ConsistencyLosses):
    """The losses of a silo's round: cross entropy, which is the divergence from the target but for what has no gradient."""

    def __init__(self, silo_round: SiloRound, views: Views, acceptance: Acceptance) -> None:
        super().__init__(silo_round.network, views, silo_round.images.unlabelled, acceptance, None)
        self._received: Network = silo_round.copy_received()

    def targets(self, weak: Tensor) -> tuple[Tensor, Tensor]:
        """Return the corrected targets of weak views, and which of them count."""
        import torch

        self.network.eval()
        try:
            with torch.no_grad():
                models = (self.network, self._received)
                local, received = (self.acceptance.shift_logits(model(weak)).softmax(1) for model in models)
        finally:
            self.network.train()
        return corrected_targets(local, received, self.acceptance.threshold, HALF_AT)


def corrected_targets(
    local: Tensor, received: Tensor, threshold: float | Tensor, half_at: float
) -> tuple[Tensor, Tensor]:
    """Return soft targets [n, C], and whether either model is confident, bool [n] (equations N29, N30).

    Parameters
    ----------
    local, received : Tensor of float, shape [n, C]
        Probabilities of the model in training and of the received one.
    threshold : float or Tensor of float64, shape [C]
        Confidence from which on a label counts; each class's, where there are several.
    half_at : float
        Gap of confidence at which both labels count alike, above 0.
    """
    (one, local_confident), (two, other) = (confident_labels(each, threshold) for each in (local, received))
    share = (own_share(local, received, half_at) * local_confident)[:, None]
    return share * one + (1 - share) * two, local_confident | other


def own_share(local: Tensor, received: Tensor, half_at: float) -> Tensor:
    """Return the share of the own model's label in a target, [n]: 1 where both models are as confident, halved by every `half_at` between them.

    Parameters as of `corrected_targets`.
    """
    import torch

    return torch.exp(-math.log(2) / half_at * (local.amax(1) - received.amax(1)).abs())

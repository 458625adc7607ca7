"""SemiFL's labels: the received model's, once per round (methods reference, 6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.pseudo_labels.calibrated import Calibrated
from anchorage.pieces.pseudo_labels.fixed_labels import FixedLabels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.learning.silo_round import SiloRound


@piece("receivedModel")
class ReceivedModel(FixedLabels, Calibrated):
    """Labels of weak views by the received model, once per round (SemiFL)."""

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return labels of weak views, in eval mode, int64 [b], and whether they are accepted, bool [b]."""
        views, network = silo_round.images.views, silo_round.network
        augmentation = silo_round.draws.torch("pseudo-labels")
        logits = views.mapped(indices, lambda i: network(views.weak(i, augmentation)))
        return self.acceptance(silo_round).labels(logits)

"""SemiFL's labels: the received model's, once per round (methods reference, 6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.piece import piece
from anchorage.pieces.pseudo_labels.fixed_labels import FixedLabels

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.learning.silo_round import SiloRound


@piece("receivedModel")
class ReceivedModel(FixedLabels):
    """The received model labels weak views of all images once per round (SemiFL)."""

    threshold: Fraction = Field("0.95", description="Confidence that accepts a pseudo-label.")

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return labels of weak views, in eval mode, int64 [b], and whether they are accepted, bool [b]."""
        views, network = silo_round.images.views, silo_round.network
        augmentation = silo_round.draws.torch("pseudo-labels")
        probabilities = views.mapped(indices, lambda i: network(views.weak(i, augmentation)).softmax(1))
        confidence, labels = probabilities.max(1)
        return labels, confidence >= float(self.threshold)

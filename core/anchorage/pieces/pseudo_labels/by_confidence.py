"""What pseudo-labellers share that accept the received model's confident predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.fact import Fact
from anchorage.pieces.slots import PseudoLabels

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.learning.silo_round import SiloRound


class ByConfidence(PseudoLabels):
    """Accepts predictions of at least a fixed confidence."""

    threshold: Fraction = Field(
        "0.95",
        description="Minimum confidence (largest class probability) of an accepted pseudo-label. Lower it to accept more labels, raise it "
        "to accept fewer wrong ones.",
    )

    def facts(self) -> frozenset[str]:
        """Say that there are pseudo-labels."""
        return frozenset({Fact.PSEUDO_LABELS, Fact.PSEUDO_LABELS_OF_ONE_HEAD})

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the received model's labels of plain images, int64 [b], and whether they are accepted, bool [b]."""
        views, network = silo_round.images.views, silo_round.network
        return self.accept(views.map_batches(indices, lambda i: network(views.plain(i)).softmax(1)))

    def accept(self, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Return labels and acceptance of probabilities [b, C], compared in their dtype (methods reference, section 12, number 2)."""
        confidence, labels = probabilities.max(1)
        return labels, confidence >= float(self.threshold)

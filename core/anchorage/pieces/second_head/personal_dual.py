"""FedRoD Dual: the personal head learns pseudo-labels, too (methods reference, 6.12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.pieces.second_head.personal import PersonalHead, personal_cross_entropy, personal_logits

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.network import Network


@piece("personalDual")
class PersonalDual(PersonalHead):
    """A personal head at each silo that learns from labels and pseudo-labels (FedRoD Dual)."""

    def needs(self) -> Sequence[Need]:
        """Need FlexMatch's labels."""
        message = (
            "found personalDual without flexMatch, beside which alone it learns; set pseudoLabels: {flexMatch: {}}, "
            "or secondHead: {none: {}}"
        )
        return (*super().needs(), Need(Fact.FLEX_MATCH, message))

    def pseudo_label_loss(self, network: Network, z: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """Return each image's cross entropy of both heads together, [n]."""
        return personal_cross_entropy(logits, personal_logits(network, z), labels)

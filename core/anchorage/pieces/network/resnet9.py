"""FedMatch's ResNet-9 (methods reference, 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("ResNet9")
class ResNet9(Network):
    """Eight convolutions without bias and normalisation, and a classifier without bias; width 512."""

    classifier_bias: ClassVar[bool] = False

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.cnns import ResNet9 as Encoder

        return Encoder(channels)

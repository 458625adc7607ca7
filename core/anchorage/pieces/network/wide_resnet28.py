"""Wide ResNet 28x2, of FedAnchor's and SemiFL's papers (methods reference, 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("WideResNet28x2")
class WideResNet28x2(Network):
    """Wide ResNet of 28 layers, twice as wide; width 128."""

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.resnets import WideResNet28

        return WideResNet28(channels, 2)

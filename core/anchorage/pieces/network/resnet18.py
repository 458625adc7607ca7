"""ResNet-18, with the stem for small images or the one for large ones (methods reference, 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("ResNet18")
class ResNet18(Network):
    """ResNet-18 with the 3×3 stem for small images, width 512."""

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.resnets import ResNet18 as Encoder

        return Encoder(channels, large=False)


@piece("ResNet18ImageNet")
class ResNet18ImageNet(Network):
    """ResNet-18 with the 7×7 stem of ImageNet, width 512."""

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.resnets import ResNet18 as Encoder

        return Encoder(channels, large=True)

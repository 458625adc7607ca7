"""A small U-Net, for segmentations of small images."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("SmallUNet")
class SmallUNet(Network):
    """A U-Net with group normalisation, for segmentations: four levels and 122,000 weights for images, three and 89,000 for volumes."""

    least_side: ClassVar[int] = 8

    @property
    def gives_maps(self) -> bool:
        """A map."""
        return True

    @property
    def takes_volumes(self) -> bool:
        """It does."""
        return True

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.unets import SmallUNet as Encoder

        return Encoder(channels)

    def volume_encoder(self, channels: int, patch: tuple[int, int, int]) -> nn.Module:
        """Return the encoder of volumes."""
        from anchorage.learning.networks.unets import SmallUNet as Encoder

        return Encoder(channels, 3)

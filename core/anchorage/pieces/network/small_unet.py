"""A small U-Net, for segmentations of small images."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("SmallUNet")
class SmallUNet(Network):
    """A U-Net of four levels with group normalisation, 122,000 weights, for segmentations."""

    least_side: ClassVar[int] = 8

    @property
    def gives_maps(self) -> bool:
        """A map."""
        return True

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.unets import SmallUNet as Encoder

        return Encoder(channels)

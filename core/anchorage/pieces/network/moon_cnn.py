"""MOON's network, and RSCFed's simple one (methods reference, 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("MoonCnn")
class MoonCnn(Network):
    """Two convolutions of 6 and 16 maps, two dense layers; always with a projection head, as its authors compare methods."""

    least_side: ClassVar[int] = 16
    projects: ClassVar[bool] = True

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.cnns import MoonCnn as Encoder

        return Encoder(channels, side)

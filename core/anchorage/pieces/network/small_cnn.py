"""Four convolutions, for small images such as digits (methods reference, 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("SmallCnn")
class SmallCnn(Network):
    """Four convolutions with batch normalisation, width 128."""

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.cnns import SmallCnn as Encoder

        return Encoder(channels)

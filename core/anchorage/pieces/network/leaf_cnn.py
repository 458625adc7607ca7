"""LEAF's network for FEMNIST (methods reference, 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("LeafCnn")
class LeafCnn(Network):
    """Two convolutions of 32 and 64 maps, one dense layer; width 2048."""

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.cnns import LeafCnn as Encoder

        return Encoder(channels, side)

"""The network of TensorFlow's CIFAR-10 tutorial (methods reference, 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("TutorialCnn")
class TutorialCnn(Network):
    """Two convolutions of 64 maps with local response normalisation, two dense layers; width 192."""

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from anchorage.learning.networks.cnns import TutorialCnn as Encoder

        return Encoder(channels, side)

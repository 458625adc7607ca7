"""Networks of MONAI (docs/networks.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn

_MEMBERS = """
DenseNet121 DenseNet169 DenseNet201 DenseNet264
resnet10 resnet18 resnet34 resnet50 resnet101 resnet152 resnet200
SEResNet50 SEResNet101 SEResNet152 SEResNext50 SEResNext101 SENet154
"""


@piece("monai/")
class Monai(Network):
    """A two-dimensional network of MONAI, by MONAI's name."""

    members: ClassVar[tuple[str, ...]] = tuple(_MEMBERS.split())
    package: ClassVar[str] = "monai"

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder.

        Raises
        ------
        AnchorageError
            NETWORK_UNUSABLE: it cannot take these images.
        """
        from anchorage.learning.networks.zoo import checked_encoder

        return checked_encoder(self.name + self.member, lambda: self._built(channels, side), channels, side)

    def _built(self, channels: int, side: int) -> nn.Module:
        from monai.networks import nets

        from anchorage.learning.networks.zoo import fit_stem

        planes = "n_input_channels" if self.member.startswith("resnet") else "in_channels"
        classes = "out_channels" if self.member.startswith("DenseNet") else "num_classes"
        network: nn.Module = getattr(nets, self.member)(**{"spatial_dims": 2, planes: channels, classes: 2})
        fit_stem(network, channels, side)
        return network

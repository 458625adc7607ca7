"""Networks of torchvision (docs/networks.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.learning.networks.stems import patch_side
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn

_MEMBERS = """
convnext_tiny convnext_small convnext_base convnext_large
densenet121 densenet161 densenet169 densenet201
efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7
efficientnet_v2_s efficientnet_v2_m efficientnet_v2_l
mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3
mobilenet_v2 mobilenet_v3_small mobilenet_v3_large
regnet_x_400mf regnet_x_800mf regnet_x_1_6gf regnet_x_3_2gf regnet_x_8gf regnet_x_16gf regnet_x_32gf
regnet_y_400mf regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf regnet_y_8gf regnet_y_16gf regnet_y_32gf regnet_y_128gf
resnet18 resnet34 resnet50 resnet101 resnet152
resnext50_32x4d resnext101_32x8d resnext101_64x4d wide_resnet50_2 wide_resnet101_2
shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0
swin_t swin_s swin_b swin_v2_t swin_v2_s swin_v2_b
vit_b_16 vit_b_32 vit_l_16 vit_l_32
"""


@piece("torchvision/")
class Torchvision(Network):
    """A network of torchvision by torchvision's name."""

    members: ClassVar[tuple[str, ...]] = tuple(_MEMBERS.split())
    package: ClassVar[str] = "torchvision"

    def takes(self, side: int) -> bool:
        """Return whether a ConvNeXt halves the image four times, and whether a vision transformer's patches fill it."""
        if self.member.startswith("vit_"):
            return side % patch_side(self._patch, side) == 0
        return side >= (16 if self.member.startswith("convnext_") else 8)

    @property
    def _patch(self) -> int:
        return int(self.member.rsplit("_", 1)[1])

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder."""
        from torchvision.models import get_model

        from anchorage.learning.networks.zoo import ZooEncoder, fit_stem

        if not self.member.startswith("vit_"):
            network = get_model(self.member, weights=None)
            fit_stem(network, channels, side)
            return ZooEncoder(network)
        patch = patch_side(self._patch, side)
        network = get_model(
            self.member, weights=None, image_size=side // patch * self._patch
        )  # as many patches as here
        fit_stem(network, channels, side)
        network.image_size, network.patch_size = side, patch
        return ZooEncoder(network)

"""Networks of MONAI (docs/networks.md)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn

_MEMBERS = """
DenseNet121 DenseNet169 DenseNet201 DenseNet264
resnet10 resnet18 resnet34 resnet50 resnet101 resnet152 resnet200
SEResNet50 SEResNet101 SEResNet152 SEResNext50 SEResNext101 SENet154
"""

_MAPS: Mapping[str, tuple[str | None, int]] = {
    "BasicUNet": ("final_conv", 16),
    "UNet": (None, 16),
    "SegResNet": ("conv_final.2", 8),
    "DynUNet": ("output_block.conv.conv", 16),
}
"""Networks for segmentations: their last convolution, and what the sides of images are multiples of."""
_MAP_WIDTH = 16
"""Channels of the map of a network whose last convolution is more than one pixel wide, and stays."""


@piece("monai/")
class Monai(Network):
    """A network of MONAI, by MONAI's name: of images, those for segmentations of volumes, too."""

    members: ClassVar[tuple[str, ...]] = (*_MEMBERS.split(), *_MAPS)
    package: ClassVar[str] = "monai"

    @property
    def gives_maps(self) -> bool:
        """Whether it is a network for segmentations."""
        return self.member in _MAPS

    @property
    def takes_volumes(self) -> bool:
        """Whether it is a network for segmentations."""
        return self.gives_maps

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder.

        Raises
        ------
        AnchorageError
            NETWORK_UNUSABLE: it cannot take these images.
        """
        from anchorage.learning.networks.zoo import checked_encoder

        if self.gives_maps:
            return self._segmenter((channels, side, side))
        return checked_encoder(self.name + self.member, lambda: self._build(channels, side), channels, side)

    def volume_encoder(self, channels: int, patch: tuple[int, int, int]) -> nn.Module:
        """Return the encoder of volumes. Errors as of `encoder`."""
        return self._segmenter((channels, *patch))

    def _build(self, channels: int, side: int) -> nn.Module:
        from monai.networks import nets

        from anchorage.learning.networks.zoo import fit_stem

        planes = "n_input_channels" if self.member.startswith("resnet") else "in_channels"
        classes = "out_channels" if self.member.startswith("DenseNet") else "num_classes"
        network: nn.Module = getattr(nets, self.member)(**{"spatial_dims": 2, planes: channels, classes: 2})
        fit_stem(network, channels, side)
        return network

    def _segmenter(self, shape: tuple[int, ...]) -> nn.Module:
        from monai.networks import nets

        from anchorage.learning.networks.unets import checked_map_encoder

        planes: dict[str, Any] = {
            "spatial_dims": len(shape) - 1, "in_channels": shape[0], "out_channels": _MAP_WIDTH
        }  # fmt: skip
        sizes: Mapping[str, Mapping[str, Any]] = {
            "UNet": {"channels": (16, 32, 64, 128, 256), "strides": (2, 2, 2, 2), "num_res_units": 2},
            "DynUNet": {"kernel_size": [3] * 5, "strides": [1, 2, 2, 2, 2], "upsample_kernel_size": [2] * 4},
        }
        build = partial(getattr(nets, self.member), **planes, **sizes.get(self.member, {}))
        head, multiple = _MAPS[self.member]
        return checked_map_encoder(self.name + self.member, build, head, multiple, shape)

"""The views of TensorFlow's CIFAR-10 tutorial (methods reference, 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anchorage.api.piece import piece
from anchorage.pieces.augmentation.per_channel import CIFAR10_MEAN, CIFAR10_STD
from anchorage.pieces.slots import ImageAugmentation

if TYPE_CHECKING:
    from anchorage.learning.data.augmentation import Augmentation


@piece("CroppedNatural")
class CroppedNatural(ImageAugmentation):
    """Crops of three quarters of the side, each image standardised by itself."""

    def view_side(self, image_size: int) -> int:
        """Return three quarters of the side."""
        return image_size * 3 // 4

    def normalisation(self, channels: int) -> Mapping[str, Any]:
        """Say that each image is cropped in the middle and standardised by itself."""
        return {"rule": "perImage"}

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import CroppedAugmentation

        return CroppedAugmentation(CIFAR10_MEAN, CIFAR10_STD)

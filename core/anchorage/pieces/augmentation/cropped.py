"""The views of TensorFlow's CIFAR-10 tutorial (methods reference, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageAugmentation

if TYPE_CHECKING:
    from anchorage.learning.data.augmentation import Augmentation


@piece("CroppedNatural")
class CroppedNatural(ImageAugmentation):
    """Crops of three quarters of the side, each image standardised by itself."""

    def view_side(self, image_size: int) -> int:
        """Return three quarters of the side."""
        return image_size * 3 // 4

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import CIFAR10_MEAN, CroppedAugmentation

        return CroppedAugmentation(CIFAR10_MEAN, (0.2023, 0.1994, 0.2010))

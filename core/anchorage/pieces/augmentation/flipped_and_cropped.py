"""SemiFL's views of photographs: flip, crop, RandAugment (methods reference, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageAugmentation

if TYPE_CHECKING:
    from anchorage.learning.data.augmentation import Augmentation


@piece("Natural")
class Natural(ImageAugmentation):
    """Photographs such as CIFAR-10's: flip and crop; strong views with RandAugment."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import CIFAR10_MEAN, Augmentation

        return Augmentation(CIFAR10_MEAN, (0.2023, 0.1994, 0.2010))


@piece("Cifar100")
class Cifar100(ImageAugmentation):
    """Natural, with CIFAR-100's mean and deviation."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import CIFAR100, Augmentation

        return Augmentation(*CIFAR100)


@piece("Svhn")
class Svhn(ImageAugmentation):
    """House numbers: crop without a flip."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import SVHN, Augmentation

        return Augmentation(*SVHN, flip=False)


@piece("Dermoscopy")
class Dermoscopy(ImageAugmentation):
    """Lesions, with ISIC's mean and deviation."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import ISIC, Augmentation

        return Augmentation(*ISIC)

"""RSCFed's and SemiAnAgg's views: enlarge, crop, flip (methods reference, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageAugmentation

if TYPE_CHECKING:
    from anchorage.learning.data.augmentation import Augmentation


@piece("ResizedNatural")
class ResizedNatural(ImageAugmentation):
    """Crops of enlarged photographs."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import CIFAR10_MEAN, ResizedAugmentation

        return ResizedAugmentation(CIFAR10_MEAN, (0.247, 0.2435, 0.2616))


@piece("ResizedCifar100")
class ResizedCifar100(ImageAugmentation):
    """ResizedNatural, with CIFAR-100's mean and deviation."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import CIFAR100, ResizedAugmentation

        return ResizedAugmentation(*CIFAR100)


@piece("ResizedSvhn")
class ResizedSvhn(ImageAugmentation):
    """ResizedNatural, with SVHN's mean and deviation."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import SVHN, ResizedAugmentation

        return ResizedAugmentation(*SVHN)


@piece("ResizedDermoscopy")
class ResizedDermoscopy(ImageAugmentation):
    """ResizedNatural, with ISIC's mean and deviation."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import ISIC, ResizedAugmentation

        return ResizedAugmentation(*ISIC)

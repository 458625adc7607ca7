"""RSCFed's and SemiAnAgg's views: enlarge, crop, flip (methods reference, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.augmentation.per_channel import (
    CIFAR10_MEAN,
    CIFAR100_MEAN,
    CIFAR100_STD,
    ISIC_MEAN,
    ISIC_STD,
    SVHN_MEAN,
    SVHN_STD,
    PerChannel,
)

if TYPE_CHECKING:
    from anchorage.learning.data.augmentation import Augmentation


class Resized(PerChannel):
    """Crops of enlarged images."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import ResizedAugmentation

        return ResizedAugmentation(self.mean, self.std)


@piece("ResizedNatural")
class ResizedNatural(Resized):
    """Crops of enlarged photographs."""

    mean, std = CIFAR10_MEAN, (0.247, 0.2435, 0.2616)


@piece("ResizedCifar100")
class ResizedCifar100(Resized):
    """As ResizedNatural, with CIFAR-100's mean and standard deviation."""

    mean, std = CIFAR100_MEAN, CIFAR100_STD


@piece("ResizedSvhn")
class ResizedSvhn(Resized):
    """As ResizedNatural, with SVHN's mean and standard deviation."""

    mean, std = SVHN_MEAN, SVHN_STD


@piece("ResizedDermoscopy")
class ResizedDermoscopy(Resized):
    """As ResizedNatural, for skin lesions, with ISIC's mean and standard deviation."""

    mean, std = ISIC_MEAN, ISIC_STD

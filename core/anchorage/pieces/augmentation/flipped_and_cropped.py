"""SemiFL's views of photographs: flip, crop, RandAugment (methods reference, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.augmentation.per_channel import (
    CIFAR10_MEAN,
    CIFAR10_STD,
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


class FlippedAndCropped(PerChannel):
    """Flip and crop; strong views with RandAugment."""

    flip: ClassVar[bool] = True

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import Augmentation

        return Augmentation(self.mean, self.std, flip=self.flip)


@piece("Natural")
class Natural(FlippedAndCropped):
    """Photographs such as those of CIFAR-10: flip and crop; strong views with RandAugment."""

    mean, std = CIFAR10_MEAN, CIFAR10_STD


@piece("Cifar100")
class Cifar100(FlippedAndCropped):
    """As Natural, with CIFAR-100's mean and standard deviation."""

    mean, std = CIFAR100_MEAN, CIFAR100_STD


@piece("Svhn")
class Svhn(FlippedAndCropped):
    """House numbers: crop without a flip."""

    mean, std = SVHN_MEAN, SVHN_STD
    flip = False


@piece("Dermoscopy")
class Dermoscopy(FlippedAndCropped):
    """As Natural, for skin lesions, with ISIC's mean and standard deviation."""

    mean, std = ISIC_MEAN, ISIC_STD

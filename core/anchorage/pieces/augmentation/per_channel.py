"""Augmentations that normalise each channel by the mean and deviation of a kind of images (methods reference, 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from anchorage.pieces.slots import ImageAugmentation

Three = tuple[float, float, float]

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2023, 0.1994, 0.2010)
CIFAR100_MEAN, CIFAR100_STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
SVHN_MEAN, SVHN_STD = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)
ISIC_MEAN, ISIC_STD = (0.763, 0.546, 0.570), (0.141, 0.153, 0.170)


class PerChannel(ImageAugmentation):
    """Plain images are only normalised."""

    mean: ClassVar[Three]
    std: ClassVar[Three]
    """Of the three channels of values in 0 … 1; grey images use their means."""
    moves_masks: ClassVar[bool] = True

    def normalisation(self, channels: int) -> Mapping[str, Any]:
        """Return the numbers."""
        both = [[sum(three) / 3] if channels == 1 else list(three) for three in (self.mean, self.std)]
        return {"rule": "perChannel", "mean": both[0], "std": both[1]}

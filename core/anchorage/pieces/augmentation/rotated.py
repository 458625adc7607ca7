"""Views of what has no upper side: resized crops, mirrored both ways and turned by quarters (methods reference, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.augmentation.per_channel import ISIC_MEAN, ISIC_STD, PerChannel

if TYPE_CHECKING:
    from anchorage.learning.data.augmentation import Augmentation


@piece("RotatedDermoscopy")
class RotatedDermoscopy(PerChannel):
    """Skin lesions in resized crops, mirrored both ways and turned by quarters, with ISIC's mean and standard deviation."""

    mean, std = ISIC_MEAN, ISIC_STD

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import RotatedAugmentation

        return RotatedAugmentation(self.mean, self.std)

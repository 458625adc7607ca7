"""Views that keep a digit a digit (methods reference, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageAugmentation

if TYPE_CHECKING:
    from anchorage.learning.data.augmentation import Augmentation


@piece("Digits")
class Digits(ImageAugmentation):
    """Shifts on a black background; strong: small turns and scales, contrast, brightness, and a cut-out square."""

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import DigitsAugmentation

        return DigitsAugmentation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), flip=False)

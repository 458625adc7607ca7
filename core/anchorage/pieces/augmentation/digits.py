"""Views that keep a digit a digit (methods reference, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.augmentation.per_channel import PerChannel

if TYPE_CHECKING:
    from anchorage.learning.data.augmentation import Augmentation


@piece("Digits")
class Digits(PerChannel):
    """Shifts on a black background; strong: small turns and scales, contrast, brightness, and a cut-out square."""

    mean, std = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)

    def augmentation(self) -> Augmentation:
        """Return the views."""
        from anchorage.learning.data.augmentation import DigitsAugmentation

        return DigitsAugmentation(self.mean, self.std, flip=False)

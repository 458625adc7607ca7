"""Mixup at the silos (methods reference, 6.8)."""

from collections.abc import Sequence
from typing import ClassVar

from anchorage.api.piece import Need, piece
from anchorage.pieces.mixup.fix_mix import FixMix, labels_fixed


@piece("client")
class ClientMixup(FixMix):
    """Mixup at the silos, beside training on images with accepted labels."""

    at_silos: ClassVar[bool] = True

    def needs(self) -> Sequence[Need]:
        """Need images with labels to mix."""
        return (labels_fixed(self.name),)

"""UDA (methods reference, 6.5)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from anchorage.api.base import AboveZero, Fraction
from anchorage.api.piece import piece
from anchorage.api.task import ONE_CLASS_EACH
from anchorage.pieces.pseudo_labels.consistency import Consistency


@piece("uda")
class UDA(Consistency):
    """UDA: sharpened confident predictions for weak views are learnt on strong views (Xie et al. 2020).

    In a segmentation, those of the confident pixels of images as they are; of volumes, of patches.
    """

    tasks: ClassVar[frozenset[str] | None] = ONE_CLASS_EACH
    for_volumes: ClassVar[bool] = True

    threshold: Fraction = Field(
        "0.8",
        description="Minimum confidence (largest class probability) of an accepted pseudo-label. Lower it to accept more labels, raise it "
        "to accept fewer wrong ones.",
    )
    temperature: AboveZero = Field(
        "0.4", description="Temperature of the soft labels; below 1 it sharpens them, 1 leaves them as predicted."
    )

    def soft_temperature(self) -> float:
        """Return the temperature of soft targets."""
        return float(self.temperature)

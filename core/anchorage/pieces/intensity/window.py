"""A fixed window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import Field, model_validator

from anchorage.api.base import Decimal
from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageIntensity


@piece("window")
class Window(ImageIntensity):
    """The same two values are black and white in every image. For CT, whose values are Hounsfield units."""

    low: Decimal = Field(
        description="Value that becomes black, in the units of the file after its rescaling, such as Hounsfield units. Smaller values are "
        "black, too."
    )
    high: Decimal = Field(description="Value that becomes white, in the same units. Larger values are white, too.")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if float(self.low) >= float(self.high):
            raise ValueError(f"found low {self.low} and high {self.high}; high must be the larger one")
        return self

    def monai(self) -> Sequence[Mapping[str, Any]]:
        """Return the same window."""
        limits = {"a_min": float(self.low), "a_max": float(self.high), "b_min": 0.0, "b_max": 1.0}
        return [{"_target_": "ScaleIntensityRanged", "keys": "image", **limits, "clip": True}]

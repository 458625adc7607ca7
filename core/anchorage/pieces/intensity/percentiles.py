"""Percentiles of each image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import Field, model_validator

from anchorage.api.base import PositiveDecimal
from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageIntensity

_MOST = 100


@piece("percentiles")
class Percentiles(ImageIntensity):
    """Two percentiles of each image are black and white in it; padding does not count. For radiographs without windows, and for MR."""

    low: PositiveDecimal = Field("0.5", description="Percentile that becomes black, from 0 to 100.")
    high: PositiveDecimal = Field("99.5", description="Percentile that becomes white, from 0 to 100.")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not float(self.low) < float(self.high) <= _MOST:
            raise ValueError(
                f"found low {self.low} and high {self.high}; allowed are 0 to {_MOST}, high the larger one"
            )
        return self

    def monai(self) -> Sequence[Mapping[str, Any]]:
        """Return the same percentiles of each channel."""
        limits = {"lower": float(self.low), "upper": float(self.high), "b_min": 0.0, "b_max": 1.0}
        shown = {"keys": "image", **limits, "clip": True, "channel_wise": True}
        return [{"_target_": "ScaleIntensityRangePercentilesd", **shown}]

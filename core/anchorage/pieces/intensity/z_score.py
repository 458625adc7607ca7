"""Standard deviations from each image's mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageIntensity


@piece("zScore")
class ZScore(ImageIntensity):
    """The mean of each image is middle grey, five standard deviations below it are black, and five above it white; padding does not count. For MR,
    whose values have no unit.
    """

    over: Literal["All", "Foreground"] = Field(
        "All",
        description="Values whose mean and standard deviation are taken. All: those of the whole image. Foreground: those above the "
        "image's mean, without the air around a body.",
    )

    def monai(self) -> Sequence[Mapping[str, Any]] | None:
        """Return the same for `over: All`; MONAI takes no mean of what is above the mean."""
        if self.over == "Foreground":
            return None
        limits = {"a_min": -5.0, "a_max": 5.0, "b_min": 0.0, "b_max": 1.0}
        return [
            {"_target_": "NormalizeIntensityd", "keys": "image", "channel_wise": True},
            {"_target_": "ScaleIntensityRanged", "keys": "image", **limits, "clip": True},
        ]

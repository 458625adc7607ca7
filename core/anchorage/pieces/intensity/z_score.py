"""Standard deviations from each image's mean."""

from __future__ import annotations

from typing import Literal

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
        description="Values of which mean and standard deviation are taken. All: those of the whole image. Foreground: those above the "
        "image's mean, so that air around a body does not count.",
    )

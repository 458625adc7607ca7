"""UDA (methods reference, 6.5)."""

from typing import Annotated, Literal

from pydantic import Field

from anchorage.api.base import AboveZero, Fraction
from anchorage.api.piece import NEW_OPTION, piece
from anchorage.pieces.pseudo_labels.consistency import Consistency


@piece("uda")
class UDA(Consistency):
    """The model's sharpened confident prediction of a weak view is learnt on a strong view (Xie et al. 2020)."""

    threshold: Fraction = Field("0.8", description="Confidence that accepts a label.")
    temperature: AboveZero = Field("0.4", description="Temperature that sharpens the soft labels.")
    views: Annotated[Literal["Augmented", "Plain"], NEW_OPTION] = Field(
        "Augmented",
        description="What is labelled and learnt.\n\nPlain: images as they are, for labels that `classCounts` corrects; each is encoded once.",
    )

    @property
    def plain_views(self) -> bool:
        """Whether images are labelled and learnt as they are."""
        return self.views == "Plain"

    def soft_temperature(self) -> float:
        """Return the temperature of soft targets."""
        return float(self.temperature)

"""UDA (methods reference, 6.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from anchorage.api.base import AboveZero, Fraction
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import NEW_OPTION, piece
from anchorage.api.task import ONE_CLASS_EACH
from anchorage.pieces.pseudo_labels.consistency import Consistency

if TYPE_CHECKING:
    from anchorage.api.plan import Plan


@piece("uda")
class UDA(Consistency):
    """UDA: sharpened confident predictions for weak views are learnt on strong views (Xie et al. 2020).

    In a segmentation, those of the confident pixels of images as they are; of volumes, of patches.
    """

    tasks: ClassVar[frozenset[str] | None] = ONE_CLASS_EACH
    for_volumes: ClassVar[bool] = True

    threshold: Fraction = Field(
        "0.8",
        description="Minimum confidence (largest class probability) at which a pseudo-label is accepted. Lower it to accept more labels, "
        "raise it to accept fewer wrong ones.",
    )
    temperature: AboveZero = Field(
        "0.4", description="Temperature of the soft labels; below 1 it sharpens them, 1 leaves them as predicted."
    )
    views: Annotated[Literal["Augmented", "Plain"], NEW_OPTION] = Field(
        "Augmented",
        description="Views that are labelled and learnt. Augmented: the label of a weak view is learnt on a strong one. Plain: images as "
        "they are, for labels that `classCounts` corrects; with a frozen encoder each image is encoded only once.",
    )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Refuse to learn images as they are where the strong view is what pixels move with."""
        yield from super().check(plan)
        if plan.spec.task.gives_maps and self.views != "Augmented":
            message = f"found {self.views}, which is for one class per image; in a {plan.spec.task.name} set Augmented"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("views"), message)

    @property
    def plain_views(self) -> bool:
        """Whether images are labelled and learnt as they are."""
        return self.views == "Plain"

    def soft_temperature(self) -> float:
        """Return the temperature of soft targets."""
        return float(self.temperature)

"""Which views of images are labelled and learnt: augmented ones, or the images as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import NEW_OPTION, expect
from anchorage.learning.hooks import MixupHooks
from anchorage.pieces.slots import PseudoLabels

if TYPE_CHECKING:
    from anchorage.api.plan import Plan
    from anchorage.learning.silo_round import SiloRound
    from anchorage.learning.views import Views


class Viewed(PseudoLabels):
    """Labels and learns weak and strong views, or images as they are."""

    views: Annotated[Literal["Augmented", "Plain"], NEW_OPTION] = Field(
        "Augmented",
        description="Views that are labelled and learnt. Augmented: those of the method's paper, weak and strong. Plain: images as they "
        "are, for labels that `classCounts` corrects; a frozen encoder then sees each image only once.",
    )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Refuse images as they are where pixels move with a view, and where views are mixed."""
        yield from super().check(plan)
        if self.views == "Augmented":
            return
        if plan.spec.task.gives_maps:
            message = f"found {self.views}, which is for one class per image; in a {plan.spec.task.name} set Augmented"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("views"), message)
        elif expect(plan.method.mixup, MixupHooks).at_silos:
            message = f"found {self.views}, but the method's mixup at silos augments what it mixes; set mixup: {{none: {{}}}}, or Augmented"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("views"), message)

    def seen(self, silo_round: SiloRound) -> Views:
        """Return the views that are labelled and learnt."""
        from anchorage.learning.views import PlainViews

        views = super().seen(silo_round)
        return views if self.views == "Augmented" else PlainViews(views)

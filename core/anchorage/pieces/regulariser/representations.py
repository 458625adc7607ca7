"""What regularisers share that compare representations of labelled images."""

from collections.abc import Sequence
from typing import ClassVar

from anchorage.api.fact import Fact
from anchorage.api.piece import Need
from anchorage.pieces.slots import Regulariser


class RepresentationRegulariser(Regulariser):
    """Compares the representations of labelled images with those by other models."""

    projection_head: ClassVar[bool] = True

    def needs(self) -> Sequence[Need]:
        """Need the plain loss on labelled images."""
        detail = f"found {self.name}, which compares representations of labelled images"
        others = {
            Fact.PSEUDO_LABELS: "but silos learn pseudo-labels; set regulariser: proximal or none",
            Fact.SECOND_HEAD: "but a second head has a loss of its own; set regulariser: proximal or none",
            Fact.SELF_SUPERVISION: "but silos learn from images alone; set regulariser: proximal or none",
            Fact.MIXED_INPUTS: "but only the plain loss on labelled images is mixed; set regulariser: proximal or none",
            Fact.CONTROL_VARIATES: "but control variates are of the plain loss; set regulariser: none",
        }
        return tuple(Need(fact, f"{detail}, {why}", refused=True) for fact, why in others.items())

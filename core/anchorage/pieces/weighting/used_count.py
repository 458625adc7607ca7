"""Weights by labelled images and accepted pseudo-labels together (methods reference, 6.11)."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from anchorage.api.piece import Need, piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.weigher import CountWeigher
from anchorage.pieces.slots import Weighting
from anchorage.pieces.weighting.selected_count import accepted_labels


@piece("usedCount")
class UsedCount(Weighting):
    """Number of labelled images and accepted pseudo-labels (CBAFed)."""

    labelled_factor: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="Number of accepted pseudo-labels that a labelled image counts for."
    )

    def needs(self) -> Sequence[Need]:
        """Need pseudo-labels."""
        return (accepted_labels(self),)

    def weigher(self, task: Task) -> CountWeigher:
        """Return the weigher, in which a labelled image counts as several accepted ones (10 on ISIC in the paper's code)."""
        return CountWeigher(*("labelled",) * self.labelled_factor, "selected")

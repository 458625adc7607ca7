"""Weights by accepted pseudo-labels (methods reference, 6.8, KAT-A12)."""

from collections.abc import Sequence

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.weigher import CountWeigher
from anchorage.pieces.slots import Weighting


@piece("selectedCount")
class SelectedCount(Weighting):
    """Number of accepted pseudo-labels."""

    def needs(self) -> Sequence[Need]:
        """Need pseudo-labels."""
        return (accepted_labels(self),)

    def weigher(self, task: Task) -> CountWeigher:
        """Return the weigher."""
        return CountWeigher("selected")


def accepted_labels(weighting: Weighting) -> Need:
    """Return the need of a weighting by accepted pseudo-labels."""
    detail = f"found {weighting.name}, which weighs silos by accepted pseudo-labels, but there are none"
    return Need(Fact.PSEUDO_LABELS, f"{detail}; fill the slot pseudoLabels, or set weighting: {{sampleCount: {{}}}}")

"""Weights by labelled images and accepted pseudo-labels together (methods reference, 6.11)."""

from collections.abc import Sequence

from anchorage.api.piece import Need, piece
from anchorage.engine.aggregation.weigher import CountWeigher
from anchorage.pieces.slots import Weighting
from anchorage.pieces.weighting.selected_count import accepted_labels


@piece("usedCount")
class UsedCount(Weighting):
    """Labelled images and accepted pseudo-labels (CBAFed)."""

    def needs(self) -> Sequence[Need]:
        """Need pseudo-labels."""
        return (accepted_labels(self),)

    def weigher(self, num_classes: int) -> CountWeigher:
        """Return the weigher."""
        return CountWeigher("labelled", "selected")

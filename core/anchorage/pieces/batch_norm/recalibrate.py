"""Running statistics are counted anew on the server's anchors (methods reference, section 1, rule 5)."""

from anchorage.api.piece import piece
from anchorage.pieces.batch_norm.recounted import RecountedNorms


@piece("recalibrate")
class Recalibrate(RecountedNorms):
    """Averaged, but the server estimates running statistics on its anchors after each round.

    Parameters are averaged.
    """

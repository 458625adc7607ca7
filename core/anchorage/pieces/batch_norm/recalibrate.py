"""Running statistics are counted anew on the server's anchors (methods reference, section 1, rule 5)."""

from anchorage.api.piece import piece
from anchorage.pieces.batch_norm.recounted import RecountedNorms


@piece("recalibrate")
class Recalibrate(RecountedNorms):
    """The server counts running statistics on its anchors every round.

    Parameters are averaged.
    """

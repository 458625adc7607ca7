"""Cross entropy of the server's anchors (methods reference, 6.7)."""

from anchorage.api.piece import piece
from anchorage.pieces.slots import ServerObjective


@piece("crossEntropy")
class AnchorCrossEntropy(ServerObjective):
    """Cross entropy of one view of each anchor."""

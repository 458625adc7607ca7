"""No second head."""

from anchorage.api.piece import piece
from anchorage.pieces.slots import SecondHead


@piece("none")
class NoSecondHead(SecondHead):
    """There is one classifier."""

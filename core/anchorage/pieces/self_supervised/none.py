"""No self-supervision."""

from anchorage.api.piece import piece
from anchorage.pieces.slots import SelfSupervised


@piece("none")
class NoSelfSupervision(SelfSupervised):
    """No self-supervised loss."""

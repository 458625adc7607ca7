"""No self-supervision."""

from anchorage.api.piece import piece
from anchorage.pieces.slots import SelfSupervised


@piece("none")
class NoSelfSupervision(SelfSupervised):
    """There is no self-supervised loss."""

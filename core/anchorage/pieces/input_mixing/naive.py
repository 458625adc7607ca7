"""NaiveMix: a batch is mixed with one mean of other silos' images (methods reference, 6.4)."""

from anchorage.api.piece import piece
from anchorage.pieces.input_mixing.means import Means


@piece("naive")
class NaiveMix(Means):
    """A batch is mixed with one mean of other silos' images (NaiveMix)."""

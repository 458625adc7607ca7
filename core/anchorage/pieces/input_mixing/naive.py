"""NaiveMix: a batch is mixed with one mean of other silos' images (methods reference, 6.4)."""

from anchorage.api.piece import piece
from anchorage.pieces.input_mixing.means import Means


@piece("naive")
class NaiveMix(Means):
    """Mixing of a batch with one mean image of other silos (NaiveMix)."""

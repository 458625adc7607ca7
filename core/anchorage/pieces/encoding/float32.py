"""Updates travel as they are."""

from anchorage.api.piece import piece
from anchorage.pieces.slots import UpdateEncoding


@piece("float32")
class Float32(UpdateEncoding):
    """As they are: every number with its own dtype."""

"""Updates travel as they are."""

from anchorage.api.piece import piece
from anchorage.pieces.slots import UpdateEncoding


@piece("float32")
class Float32(UpdateEncoding):
    """No encoding: every number travels in its own dtype."""

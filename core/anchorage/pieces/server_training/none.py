"""The server does not train."""

from anchorage.api.piece import piece
from anchorage.pieces.slots import ServerTraining


@piece("none")
class NoServerTraining(ServerTraining):
    """No training at the server."""

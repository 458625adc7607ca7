"""The aggregated update is the new global model (methods reference, 6.1)."""

from collections.abc import Sequence

from anchorage.api.piece import Need, piece
from anchorage.pieces.slots import ServerStep


@piece("replace")
class Replace(ServerStep):
    """The aggregated update becomes the global model."""

    def needs(self) -> Sequence[Need]:
        """Return nothing: it suits every protocol."""
        return ()

"""Cross entropy of the server's anchors (methods reference, 6.7)."""

from typing import ClassVar

from anchorage.api.piece import piece
from anchorage.api.task import CLASSIFICATION
from anchorage.pieces.slots import ServerObjective


@piece("crossEntropy")
class AnchorCrossEntropy(ServerObjective):
    """Cross entropy of one view of each anchor."""

    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION

"""The task's own loss of the server's anchors, such as cross entropy (methods reference, 6.7)."""

from typing import ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import ServerObjective


@piece("taskLoss")
class AnchorTaskLoss(ServerObjective):
    """The task's own loss of one view of each anchor, which is cross entropy for classification."""

    tasks: ClassVar[frozenset[str] | None] = None

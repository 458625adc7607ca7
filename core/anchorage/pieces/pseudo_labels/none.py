"""No pseudo-labels."""

from typing import ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import PseudoLabels


@piece("none")
class NoPseudoLabels(PseudoLabels):
    """No pseudo-labels: silos learn from their own labels only."""

    tasks: ClassVar[frozenset[str] | None] = None
    labels_images: ClassVar[bool] = False

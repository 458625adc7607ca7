"""No mixup."""

from typing import ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Mixup


@piece("none")
class NoMixup(Mixup):
    """No mixup."""

    tasks: ClassVar[frozenset[str] | None] = None

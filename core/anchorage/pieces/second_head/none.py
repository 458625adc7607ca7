"""No second head."""

from typing import ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import SecondHead


@piece("none")
class NoSecondHead(SecondHead):
    """No second classifier."""

    tasks: ClassVar[frozenset[str] | None] = None

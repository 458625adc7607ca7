"""Images are not mixed with others."""

from typing import ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import InputMixing


@piece("none")
class NoInputMixing(InputMixing):
    """Labelled images are not mixed."""

    tasks: ClassVar[frozenset[str] | None] = None

"""No regulariser."""

from typing import ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Regulariser


@piece("none")
class NoRegulariser(Regulariser):
    """No regulariser."""

    resumes: ClassVar[bool] = True

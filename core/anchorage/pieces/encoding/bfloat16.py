"""Changes in bfloat16: half the bytes."""

from typing import ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.encoding.rounded import RoundedChange
from anchorage.transport.tensors.encoded import Bits


@piece("bFloat16")
class BFloat16(RoundedChange):
    """Changes in bfloat16: half the bytes."""

    bits: ClassVar[Bits | None] = 16

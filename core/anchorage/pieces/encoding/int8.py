"""Changes in 8 bits, with a power of two as scale of every 256: a quarter of the bytes."""

from typing import ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.encoding.rounded import RoundedChange
from anchorage.transport.tensors.encoded import Bits


@piece("int8")
class Int8(RoundedChange):
    """Changes in 8 bits, with a power of two as scale of every 256: a quarter of the bytes."""

    bits: ClassVar[Bits | None] = 8

"""Changes in 8 bits: a quarter of the bytes.

Every 256 have a power of two as scale.
"""

from anchorage.api.piece import piece
from anchorage.pieces.encoding.rounded import RoundedChange
from anchorage.transport.tensors.codings import BlockCoding


@piece("int8")
class Int8(RoundedChange):
    """Changes of the model in 8 bits: a quarter of the bytes."""

    def coding(self) -> BlockCoding:
        """Return the coding."""
        return BlockCoding(bits=8)

"""Changes in 4 bits, with error feedback: an eighth of the bytes."""

from anchorage.api.piece import piece
from anchorage.pieces.encoding.rounded import RoundedChange
from anchorage.transport.tensors.codings import BlockCoding


@piece("int4")
class Int4(RoundedChange):
    """Changes of the model in 4 bits: an eighth of the bytes.

    Every 64 have a scale; silos add what is lost to their next update.
    """

    def coding(self) -> BlockCoding:
        """Return the coding."""
        return BlockCoding(bits=4, feedback=True)

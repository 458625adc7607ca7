"""Changes in bfloat16: half the bytes."""

from anchorage.api.piece import piece
from anchorage.pieces.encoding.rounded import RoundedChange
from anchorage.transport.tensors.codings import BFloat16Coding


@piece("bFloat16")
class BFloat16(RoundedChange):
    """Changes of the model in bfloat16: half the bytes."""

    def coding(self) -> BFloat16Coding:
        """Return the coding."""
        return BFloat16Coding()

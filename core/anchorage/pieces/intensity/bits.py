"""Black and white by the bits of a file."""

from __future__ import annotations

from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageIntensity


@piece("bits")
class Bits(ImageIntensity):
    """Black is 0, and white the largest value that the file's bits can hold: 255, 1023, 4095, 16383 or 65535. For photographs."""

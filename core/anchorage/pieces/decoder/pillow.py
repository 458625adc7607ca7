"""The image formats that Pillow reads: BMP, GIF, JPEG, JPEG 2000, PNG, PGM and PPM, TIFF, WebP."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import Decoder

if TYPE_CHECKING:
    from anchorage.learning.data.decoding import Input, Picture


@piece("Pillow")
class Pillow(Decoder):
    """The image formats that Pillow reads; see `anchorage.learning.data.decoding`."""

    def version(self) -> str:
        """Return Pillow's version, and that of what is made of its pixels."""
        from PIL import __version__

        from anchorage.learning.data.decoding import RULES

        return f"{__version__}, rules {RULES}"

    def suffixes(self) -> Collection[str]:
        """Return the suffixes of its formats."""
        from anchorage.learning.data.decoding import SUFFIXES

        return SUFFIXES

    def recognises(self, head: bytes) -> bool:
        """Return whether Pillow's parsers accept these bytes."""
        from anchorage.learning.data.decoding import is_recognised

        return is_recognised(head)

    def picture(self, content: bytes, wanted: Input, frame: int) -> Picture:
        """Decode the first page or frame of a file by Pillow."""
        from anchorage.learning.data.decoding import open_picture

        return open_picture(content, wanted.side, wanted.channels)

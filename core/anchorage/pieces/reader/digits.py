"""Scikit-learn's hand-written digits, which need no volume."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from anchorage.api.data import DataSection
    from anchorage.learning.data.labels import LabelReader
    from anchorage.learning.data.listing import Listing


@piece("Digits")
class Digits(Reader):
    """Scikit-learn's hand-written digits, which need no volume."""

    needs_claim: ClassVar[bool] = False

    def listing(self, section: DataSection, root: Path, reader: LabelReader) -> Listing:
        """List the images; see `anchorage.learning.data.digits`."""
        from anchorage.learning.data.digits import list_digits

        return list_digits(reader)

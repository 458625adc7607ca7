"""What reading images asks of formats. Needs no torch."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from anchorage.api.data import DataFormat

if TYPE_CHECKING:
    from pathlib import Path

    from anchorage.api.data import DataSection
    from anchorage.learning.data.labels import LabelReader
    from anchorage.learning.data.listing import Listing


class ReaderHooks(DataFormat):
    """A format of images and labels."""

    @abstractmethod
    def listing(self, section: DataSection, root: Path, reader: LabelReader) -> Listing:
        """List the images of a section, bad ones included, with the labels that `reader` reads; nothing is decoded yet."""

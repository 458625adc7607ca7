"""A data set of MedMNIST, as it is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from anchorage.api.data import DataSection
    from anchorage.learning.data.labels import LabelReader
    from anchorage.learning.data.listing import Listing


@piece("MedMnist")
class MedMnist(Reader):
    """A data set of MedMNIST, as it is published."""

    divided: ClassVar[bool] = True

    def listing(self, section: DataSection, root: Path, reader: LabelReader) -> Listing:
        """List the images; see `anchorage.learning.data.med_mnist`."""
        from anchorage.learning.data.med_mnist import list_med_mnist

        return list_med_mnist(section, root, reader)

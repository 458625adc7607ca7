"""DICOM files as a PACS exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from anchorage.api.data import DataSection
    from anchorage.learning.data.labels import LabelReader
    from anchorage.learning.data.listing import Listing


@piece("DicomFolder")
class DicomFolder(Reader):
    """DICOM files as a PACS exports them: found by their content in folders of any depth, whatever they are called."""

    def listing(self, section: DataSection, root: Path, reader: LabelReader) -> Listing:
        """List the images; see `anchorage.learning.data.dicom_folders`."""
        from anchorage.learning.data.dicom_folders import list_dicom

        return list_dicom(section, root, reader)

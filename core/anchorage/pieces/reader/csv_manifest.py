"""A table of images with a label column or one-hot columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from anchorage.api.data import DataSection
    from anchorage.learning.data.labels import LabelReader
    from anchorage.learning.data.listing import Listing


@piece("CsvManifest")
class CsvManifest(Reader):
    """A table of images with a label column or one-hot columns."""

    needs_manifest: ClassVar[bool] = True
    tells_channels: ClassVar[bool] = True

    def listing(self, section: DataSection, root: Path, reader: LabelReader) -> Listing:
        """List the images; see `anchorage.learning.data.manifests`."""
        from anchorage.learning.data.manifests import list_manifest

        return list_manifest(section, root, reader)

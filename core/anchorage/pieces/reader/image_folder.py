"""One folder per class; images beside the class folders have no label."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from anchorage.api.data import DataSection
    from anchorage.learning.data.labels import LabelReader
    from anchorage.learning.data.listing import Listing


@piece("ImageFolder")
class ImageFolder(Reader):
    """One folder per class; images beside the class folders have no label."""

    tells_channels: ClassVar[bool] = True

    def listing(self, section: DataSection, root: Path, reader: LabelReader) -> Listing:
        """List the images; see `anchorage.learning.data.folders`, and of masks `anchorage.learning.data.mask_folders`."""
        from anchorage.learning.data.folders import list_folder
        from anchorage.learning.data.mask_folders import list_pairs
        from anchorage.learning.data.masks import MaskReader

        return (
            list_pairs(section, root, reader) if isinstance(reader, MaskReader) else list_folder(section, root, reader)
        )

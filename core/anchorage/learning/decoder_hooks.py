"""What reading images asks of decoders, and of intensities. Needs no decoder's library until a hook is called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from anchorage.api.model import IntensityKind
from anchorage.api.piece import Piece

if TYPE_CHECKING:
    from pathlib import Path

    from anchorage.learning.data.decoding import Input, Intensity, Picture
    from anchorage.learning.data.file_header import Header
    from anchorage.learning.data.scans import Scan


class IntensityHooks(IntensityKind):
    """Which values of an image become black and white."""

    def shades(self) -> Intensity | None:
        """Return what turns a picture into shades of 0 to 1; None: white is what its bits can hold."""
        from anchorage.learning.data.intensity import intensity_of

        return intensity_of({self.name: self.model_dump()})

    def monai(self) -> Sequence[Mapping[str, Any]] | None:
        """Return MONAI's transforms that show the key ``image`` alike, as a bundle's configuration writes them; None: MONAI has none."""
        return None


class DecoderHooks(Piece):
    """A kind of image files; hooks may be called from several threads."""

    @abstractmethod
    def version(self) -> str:
        """Return the version of what decodes: pixels of another one may differ, so that what was stored is decoded anew."""

    @abstractmethod
    def suffixes(self) -> Collection[str]:
        """Return how names of its files end, in lower case with a dot: such files are listed as images. Content decides what a file is."""

    @abstractmethod
    def recognises(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes, at most 512, is of this kind."""

    def header(self, file: BinaryIO) -> Header | None:
        """Return what a file says of itself beside pixels, such as its patient; None: nothing that is used. Reads no pixels.

        Parameters
        ----------
        file : binary file
            At its beginning; it can be read anywhere.

        Raises
        ------
        RefusedImageError
            The file is damaged.
        """
        return None

    @abstractmethod
    def picture(self, content: bytes, wanted: Input, frame: int) -> Picture:
        """Decode a file.

        Parameters
        ----------
        content : bytes
            The whole file.
        wanted : Input
            What the model takes. The picture will be fitted to its side: it may be decoded smaller than it is, but not than that. It may be grey or
            RGB, whatever the model's channels.
        frame : int
            Which of the file's frames, from 0; always 0 where `header` tells of no more.

        Raises
        ------
        RefusedImageError
            The file is damaged, too large, or has what is not read.
        """

    def scan(self, files: Sequence[Path]) -> Scan:
        """Decode a volume: that of one file, or of all slices of a series, in any order.

        Raises
        ------
        RefusedImageError
            The files are damaged, too large, or no volume.
        """
        from anchorage.learning.data.decoding import RefusedImageError

        raise RefusedImageError("Unsupported", "a picture, where a volume is needed")

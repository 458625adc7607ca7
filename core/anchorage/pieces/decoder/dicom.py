"""DICOM, by pydicom, GDCM, OpenJPEG and CharLS."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, BinaryIO

from anchorage.api.piece import piece
from anchorage.pieces.decoder.clinical import absent, are_installed
from anchorage.pieces.slots import Decoder

if TYPE_CHECKING:
    from pathlib import Path

    from anchorage.learning.data.decoding import Input, Picture
    from anchorage.learning.data.file_header import Header
    from anchorage.learning.data.scans import Scan

_PACKAGES = ("pydicom", "gdcm", "pylibjpeg", "openjpeg", "jpeg_ls")
_MARK = slice(128, 132)
_FIRST_ELEMENTS = tuple(
    struct.pack(f"{order}HH", group, element)
    for order in "<>"
    for group in (2, 8)
    for element in (0, 1, 5, 8, 0x16, 0x18)
)
"""Tags with which files without a mark begin: of the groups 0002 and 0008."""


@piece("Dicom")
class Dicom(Decoder):
    """DICOM; see `anchorage.learning.data.dicom`."""

    def version(self) -> str:
        """Return the versions of all that decodes."""
        if not are_installed(_PACKAGES):
            return "not installed"
        from anchorage.learning.data.dicom import version

        return version()

    def suffixes(self) -> Collection[str]:
        """Return usual suffixes; files without one are recognised by their content."""
        return (".dcm", ".dic", ".dicom", ".ima")

    def recognises(self, head: bytes) -> bool:
        """Return whether a file begins as DICOM does: with its mark, or without one with a usual first element."""
        if head[_MARK.start : _MARK.stop] == b"DICM":
            return True
        if not head.startswith(_FIRST_ELEMENTS) or len(head) < 8:
            return False
        lengths = [struct.unpack(f"{order}I", head[4:8])[0] for order in "<>"]
        return head[4:6].isalpha() or any(0 < length <= 256 for length in lengths)

    def header(self, file: BinaryIO) -> Header:
        """Read identifiers and what may not be used."""
        if not are_installed(_PACKAGES):
            raise absent("DICOM", _PACKAGES)
        from anchorage.learning.data.dicom import header_of

        return header_of(file)

    def picture(self, content: bytes, wanted: Input, frame: int) -> Picture:
        """Decode a frame."""
        if not are_installed(_PACKAGES):
            raise absent("DICOM", _PACKAGES)
        from anchorage.learning.data.dicom import picture_of

        return picture_of(content, frame)

    def scan(self, files: Sequence[Path]) -> Scan:
        """Decode the volume of a series, or of the frames of a file."""
        if not are_installed(_PACKAGES):
            raise absent("DICOM", _PACKAGES)
        from anchorage.learning.data.dicom_series import read_series

        return read_series(files)

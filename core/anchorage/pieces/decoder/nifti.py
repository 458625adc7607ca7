"""NIfTI, by nibabel."""

from __future__ import annotations

import struct
import zlib
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

_PACKAGES = ("nibabel",)
_GZIP = b"\x1f\x8b"
_SIZES = {348: (344, (b"n+1\0", b"ni1\0")), 540: (4, (b"n+2\0", b"ni2\0"))}
"""Bytes of a header, which it begins with, to where its mark is, and the marks."""


@piece("Nifti")
class Nifti(Decoder):
    """NIfTI; see `anchorage.learning.data.nifti`."""

    def version(self) -> str:
        """Return the version of what decodes."""
        if not are_installed(_PACKAGES):
            return "not installed"
        from anchorage.learning.data.nifti import version

        return version()

    def suffixes(self) -> Collection[str]:
        """Return the suffixes of single files."""
        return (".nii", ".nii.gz")

    def recognises(self, head: bytes) -> bool:
        """Return whether a file begins as NIfTI does, compressed or not; the header of a pair of files, too."""
        if head.startswith(_GZIP):
            try:
                head = zlib.decompressobj(31).decompress(head, 512)
            except zlib.error:
                return False
        sizes = {struct.unpack(f"{order}i", head[:4])[0] for order in "<>"} if len(head) >= 4 else set()
        for size in sizes & _SIZES.keys():
            place, marks = _SIZES[size]
            return len(head) < place + 4 or head[place : place + 4] in marks
        return False

    def header(self, file: BinaryIO) -> Header:
        """Count the slices."""
        if not are_installed(_PACKAGES):
            raise absent("NIfTI", _PACKAGES)
        from anchorage.learning.data.nifti import header_of

        return header_of(file)

    def picture(self, content: bytes, wanted: Input, frame: int) -> Picture:
        """Decode a slice."""
        if not are_installed(_PACKAGES):
            raise absent("NIfTI", _PACKAGES)
        from anchorage.learning.data.nifti import picture_of

        return picture_of(content, frame)

    def scan(self, files: Sequence[Path]) -> Scan:
        """Decode the volume of a file."""
        if not are_installed(_PACKAGES):
            raise absent("NIfTI", _PACKAGES)
        from anchorage.learning.data.decoding import RefusedImageError
        from anchorage.learning.data.nifti import read_scan

        if len(files) > 1:
            raise RefusedImageError("MixedSeries", f"{len(files)} NIfTI files, of which each is a volume")
        return read_scan(files[0])

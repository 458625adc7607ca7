"""The window that each file names."""

from __future__ import annotations

from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageIntensity


@piece("dicomWindow")
class DicomWindow(ImageIntensity):
    """Each DICOM file is shown as its own lookup table or first window says, else from its least to its largest value. For radiographs. Other files
    are shown by their bits.
    """

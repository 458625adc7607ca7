"""Where an image comes from: a file, a frame of one, a series of slices, channels, or pixels that are decoded already."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a file."""

    file: Path
    """The file."""
    number: int
    """Which frame, from 1: the first of all is the file itself."""


@dataclass(frozen=True, slots=True)
class Series:
    """The files of a series of DICOM slices, in any order, which are one volume."""

    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Channels:
    """The channels of one volume, each a file or a series of its own, in the order of the model's channels."""

    parts: tuple[Path | Series, ...]


Source = Path | Frame | Series | Channels | Pixels | None
"""A file, of which the first frame counts, another frame, a series, channels, decoded pixels [H, W], or None where the listed image is not there."""


def file_and_frame(source: Path | Frame | Series | Channels | None) -> tuple[Path | None, int]:
    """Return the file of an image, the first one of a series or of channels, and which of its frames it is, from 0."""
    if isinstance(source, Channels):
        return file_and_frame(source.parts[0])
    if isinstance(source, Series):
        return (source.files[0] if source.files else None), 0
    return (source.file, source.number) if isinstance(source, Frame) else (source, 0)


def files_of(source: Source) -> tuple[Path, ...]:
    """Return the files of an image: of channels those of each in turn; none where it has none."""
    match source:
        case Path():
            return (source,)
        case Frame():
            return (source.file,)
        case Series():
            return source.files
        case Channels():
            return tuple(file for part in source.parts for file in files_of(part))
    return ()

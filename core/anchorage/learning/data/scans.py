"""What a file of a volume, or a series of slices, holds: values in their units on a grid in the patient."""

from dataclasses import dataclass
from math import inf

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.learning.data.decoding import RefusedImageError
from anchorage.learning.data.grids import LEAST_SLICES, Grid

_STEP_MM = 0.25
"""To which the spacing in a site's report is rounded."""


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A volume as its files have it.

    Parameters
    ----------
    values : ndarray of float32, shape [c, i, j, k]
        In the units of the file, after its rescaling, such as Hounsfield units.
    grid : Grid
        Where the voxels lie.
    digest : bytes
        As `digest_of_volume` has it; of a series of the digests of its files.
    low, high : float
        Least and largest value that the file's bits can hold, in the units of the values; infinite where the file does not say.
    padding : ndarray of bool, shape [i, j, k], or None
        Where there is no image, as outside of a CT's circle; None: nowhere.
    inverted : bool
        Whether large values are dark.
    facts : tuple of str
        What a site's report counts of the volume, such as ``modality CT``; nothing that names a patient, a place or a device.
    decoder : str
        What decoded it, with its version.
    """

    values: NDArray[np.float32]
    grid: Grid
    digest: bytes
    low: float = 0.0
    high: float = inf
    padding: NDArray[np.bool_] | None = None
    inverted: bool = False
    facts: tuple[str, ...] = ()
    decoder: str = ""


def digest_of_volume(content: bytes) -> bytes:
    """Return BLAKE3 of bytes, as long as a picture's digest, which takes several times as long: a volume has many bytes."""
    return blake3(content).digest(length=64)


def facts_of(grid: Grid) -> tuple[str, str]:
    """Return what a site's report counts of a grid: where the axes lead, and the spacing in steps of 0.25 mm."""
    x, y, z = (max(_STEP_MM, round(length / _STEP_MM) * _STEP_MM) for length in grid.spacing)
    return f"orientation {grid.orientation}", f"spacing {x:g}×{y:g}×{z:g} mm"


def refuse_flat(shape: tuple[int, ...]) -> None:
    """Refuse what has too few slices, rows or columns to be a volume.

    Raises
    ------
    RefusedImageError
        It has.
    """
    if min(shape) < LEAST_SLICES:
        detail = f"{'×'.join(map(str, shape))} voxels, which are no volume: it has {LEAST_SLICES} slices or more"
        raise RefusedImageError("Unsupported", detail)

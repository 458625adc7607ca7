"""Where the voxels of a volume lie in the patient, and volumes on a model's grid.

Positions are in mm, to the patient's right, front and head (RAS, as in NIfTI). A model's grid keeps the axes of the file, in the order and direction
that is nearest to right, front and head, so that nothing is turned; along them the voxels lie as far apart as the model wants, around the same
centre. A grid whose axes do not count keeps their order and direction, too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import permutations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorage.learning.data.decoding import RefusedImageError

MOST_VOLUME_BYTES = 2**30
"""Largest volume that is read, in the file and as float32, and largest on a model's grid."""
LEAST_SLICES = 3
"""Slices, rows and columns of a volume."""
_CLOSE_MM = 1e-3
_ENDS = ("LR", "PA", "IS")
_FLAT = 1e-2
"""Volume of a box of three axes of length 1 below which they are taken to lie in a plane."""

N = TypeVar("N", bound=np.generic)


class Axes(Enum):
    """Whether the axes of a grid are known to lead somewhere in the patient."""

    KNOWN = auto()
    UNKNOWN = auto()
    """The file does not say: `Grid.affine` has nothing but the spacing."""
    AS_STORED = auto()
    """They are known, but stay in the order and direction that the file has."""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Voxels of a volume.

    Parameters
    ----------
    shape : tuple of int
        Voxels along each axis.
    affine : ndarray of float64, shape [4, 4]
        From the indices of a voxel to the position of its middle, mm.
    axes : Axes
        Whether `turn` and `upright` turn anything.

    Raises
    ------
    RefusedImageError
        Its axes lead nowhere.
    """

    shape: tuple[int, int, int]
    affine: NDArray[np.float64]
    axes: Axes = Axes.KNOWN

    def __post_init__(self) -> None:
        lengths = np.linalg.norm(self.affine[:3, :3], axis=0)
        if not np.isfinite(self.affine).all() or not (lengths > 0).all():
            raise RefusedImageError("Damaged", "axes that lead nowhere")
        if abs(np.linalg.det(self.affine[:3, :3] / lengths)) < _FLAT:
            raise RefusedImageError("Damaged", "axes that lie in a plane")

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Distance of neighbouring voxels along each axis, mm."""
        x, y, z = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(x), float(y), float(z)

    @property
    def order(self) -> tuple[int, int, int]:
        """Which axis leads most to the right or left, which to the front or back, and which to the head or feet; as stored, if they do not count."""
        if self.axes is not Axes.KNOWN:
            return 0, 1, 2
        along = np.abs(self.affine[:3, :3]) / np.linalg.norm(self.affine[:3, :3], axis=0)
        x, y, z = max(permutations(range(3)), key=lambda axes: round(sum(along[row, axes[row]] for row in range(3)), 6))
        return x, y, z

    @property
    def flipped(self) -> tuple[bool, bool, bool]:
        """Whether each axis of `order` leads to the left, to the back and to the feet; never, if they do not count."""
        if self.axes is not Axes.KNOWN:
            return False, False, False
        x, y, z = (bool(self.affine[row, axis] < 0) for row, axis in enumerate(self.order))
        return x, y, z

    @property
    def orientation(self) -> str:
        """Where the file's axes lead, such as ``LPS``, whether this counts or not."""
        if self.axes is Axes.UNKNOWN:
            return "not stated"
        known = replace(self, axes=Axes.KNOWN)
        names = {
            axis: _ENDS[row][not back] for row, (axis, back) in enumerate(zip(known.order, known.flipped, strict=True))
        }
        return "".join(names[axis] for axis in range(3))

    def upright(self, values: NDArray[N]) -> NDArray[N]:
        """Return a view of values [..., i, j, k] on this grid whose axes lead to the right, the front and the head."""
        leading = values.ndim - 3
        turned = values.transpose(*range(leading), *(leading + axis for axis in self.order))
        return turned[(..., *self._steps())]

    def as_stored(self, values: NDArray[N]) -> NDArray[N]:
        """Return a view of what `upright` returns with the axes of this grid again."""
        leading = values.ndim - 3
        back = np.argsort(self.order)
        return values[(..., *self._steps())].transpose(*range(leading), *(leading + int(axis) for axis in back))

    def turn(self) -> "Grid":
        """Return the grid of what `upright` returns."""
        columns = self.affine[:3, list(self.order)]
        x, y, z = (self.shape[axis] for axis in self.order)
        back = np.array(self.flipped)
        affine = np.eye(4)
        affine[:3, :3] = np.where(back, -columns, columns)
        affine[:3, 3] = self.affine[:3, 3] + columns @ (back * (np.array((x, y, z)) - 1))
        return Grid((x, y, z), affine, self.axes)

    def without_turning(self) -> "Grid":
        """Return this grid with axes that stay as they are stored."""
        return self if self.axes is Axes.UNKNOWN else replace(self, axes=Axes.AS_STORED)

    def is_near(self, other: "Grid") -> bool:
        """Return whether another grid has the same voxels, in whatever order, within 0.001 mm."""
        own_grid, others = self.turn(), other.turn()
        return own_grid.shape == others.shape and bool(np.abs(own_grid.affine - others.affine).max() <= _CLOSE_MM)

    def _steps(self) -> tuple[slice, slice, slice]:
        x, y, z = (slice(None, None, -1 if back else 1) for back in self.flipped)
        return x, y, z


def respace(grid: Grid, spacing: tuple[float, float, float]) -> Grid:
    """Return the grid of a model over the same part of the patient.

    Parameters
    ----------
    grid : Grid
        Of a file.
    spacing : tuple of float
        Distance of neighbouring voxels to the right, the front and the head, mm, above 0.
    """
    turned = grid.turn()
    lengths = np.array(turned.spacing)
    extents = (n * old / new for n, old, new in zip(turned.shape, turned.spacing, spacing, strict=True))
    counts = [max(1, math.floor(round(extent, 6) + 0.5)) for extent in extents]
    shape = (counts[0], counts[1], counts[2])
    affine = np.eye(4)
    affine[:3, :3] = turned.affine[:3, :3] / lengths * np.array(spacing)
    middle = turned.affine[:3, :3] @ ((np.array(turned.shape) - 1) / 2) + turned.affine[:3, 3]
    affine[:3, 3] = middle - affine[:3, :3] @ ((np.array(shape) - 1) / 2)
    return Grid(shape, affine, grid.axes)


def on_grid_of_model(values: NDArray[np.float32], grid: Grid, wanted: Grid) -> NDArray[np.float32]:
    """Return values between which is interpolated linearly, float32 [c, x, y, z] in C order.

    Parameters
    ----------
    values : ndarray of float32, shape [c, i, j, k]
        On the grid of a file.
    grid : Grid
        That grid.
    wanted : Grid
        What `respace` returns of it.
    """
    return _resample(grid.upright(values), grid.turn(), wanted, _linear)


def nearest_on_grid_of_model(values: NDArray[N], grid: Grid, wanted: Grid) -> NDArray[N]:
    """Return the nearest voxels of values [i, j, k], such as classes; else as `on_grid_of_model`."""
    return _resample(grid.upright(values), grid.turn(), wanted, _nearest)


def on_own_grid(classes: NDArray[np.uint8], grid: Grid, file_grid: Grid) -> NDArray[np.uint8]:
    """Return classes on the grid of the file for which they were predicted, by the nearest voxel, uint8 [i, j, k].

    Parameters
    ----------
    classes : ndarray of uint8, shape [x, y, z]
        On the model's grid.
    grid : Grid
        The model's: what `respace` returns of the file's.
    file_grid : Grid
        The file's.

    Raises
    ------
    ValueError
        The model's grid is not of this file.
    """
    if classes.shape != grid.shape or not respace(file_grid, grid.spacing).is_near(grid):
        raise ValueError(
            f"classes of shape {classes.shape} on a grid that is not of a file with {file_grid.shape} voxels"
        )
    return np.ascontiguousarray(file_grid.as_stored(_resample(classes, grid, file_grid.turn(), _nearest)))


def refuse_large(shape: tuple[int, ...], itemsize: int) -> None:
    """Refuse a volume before anything of it is inflated or allocated.

    Raises
    ------
    RefusedImageError
        It is larger than `MOST_VOLUME_BYTES`.
    """
    if math.prod(shape) * max(itemsize, 4) > MOST_VOLUME_BYTES:
        most = f"at most {MOST_VOLUME_BYTES // 4} voxels, and {MOST_VOLUME_BYTES // 2**20} MiB, are read"
        raise RefusedImageError("TooLarge", f"{'×'.join(map(str, shape))} voxels; {most}")


_Along = Callable[[NDArray[Any], NDArray[np.float64], int], NDArray[Any]]


def _resample(values: NDArray[N], grid: Grid, wanted: Grid, along: _Along) -> NDArray[N]:
    """Return values of a grid at the places of another that has the same axes and middle; axes that shrink most come first."""
    axes = sorted(range(3), key=lambda axis: wanted.shape[axis] / grid.shape[axis])
    for axis in axes:
        ratio = wanted.spacing[axis] / grid.spacing[axis]
        old, new = grid.shape[axis], wanted.shape[axis]
        if old != new or abs(ratio - 1) * old > 1e-4:
            places = (np.arange(new) - (new - 1) / 2) * ratio + (old - 1) / 2
            values = along(values, places.clip(0, old - 1), values.ndim - 3 + axis)
    return np.ascontiguousarray(values)


def _linear(values: NDArray[Any], places: NDArray[np.float64], axis: int) -> NDArray[Any]:
    """Interpolate between neighbours along an axis."""
    below = np.floor(places).astype(np.int64)
    shape = [1] * values.ndim
    shape[axis] = len(places)
    share = (places - below).astype(np.float32).reshape(shape)
    interpolated = values.take(below, axis)
    step = values.take(np.minimum(below + 1, values.shape[axis] - 1), axis)
    step -= interpolated
    step *= share
    interpolated += step
    return interpolated


def _nearest(values: NDArray[Any], places: NDArray[np.float64], axis: int) -> NDArray[Any]:
    """Take the nearest neighbour along an axis; of two as near by turns the one before and the one behind, so that on average nothing moves."""
    places = np.round(places, 9)
    nearest = np.floor(places + 0.5).astype(np.int64)
    between = places % 1 == 0.5
    nearest[between] -= np.cumsum(between)[between] % 2
    return values.take(nearest, axis)

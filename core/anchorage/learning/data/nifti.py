"""NIfTI files to pictures, and to volumes and back.

Pictures are slices from the feet upwards, each as a radiologist sees it, with the patient's right on the left and the front on top.

So a slice of a DICOM series and that of its NIfTI conversion are the same picture. What a header states is compared with bounds before anything is
inflated. Texts of headers and extensions are not looked at: converters write patients' data there.
"""

import logging
import math
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import nibabel
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.imageglobals import logger as nibabel_logger
from nibabel.spatialimages import HeaderDataError
from nibabel.wrapstruct import WrapStructError
from numpy.typing import NDArray

from anchorage.learning.data.decoding import (
    DAMAGE,
    MOST_PIXELS,
    WHITES,
    Measured,
    Picture,
    RefusedImageError,
    read_content,
)
from anchorage.learning.data.file_header import Header
from anchorage.learning.data.grids import MOST_VOLUME_BYTES, Axes, Grid, refuse_large
from anchorage.learning.data.scans import Scan, digest_of_volume, facts_of, refuse_flat

MOST_SLICED_BYTES = 512 * 2**20
"""Largest volume that is inflated for its slices."""
MOST_SLICES = 10_000
RULES = 1
"""Raised when this module makes other pixels of a file than before."""

_GZIP = b"\x1f\x8b"
_HEADER_BYTES = 540
_PAIRS = (b"ni1\0", b"ni2\0")

_UNREADABLE = (*DAMAGE, struct.error, zlib.error, AssertionError, WrapStructError, HeaderDataError, ImageFileError)
"""What the library raises on files that are damaged."""

nibabel_logger.setLevel(logging.CRITICAL + 1)  # it quotes values of headers


def version() -> str:
    """Return the version of what decodes."""
    return f"nibabel {nibabel.__version__}, rules {RULES}"


def header_of(file: BinaryIO) -> Header:
    """Return how many slices a file has.

    Raises
    ------
    RefusedImageError
        It is damaged.
    """
    try:
        header = _header(_inflate(file.read(4096), _HEADER_BYTES))
        return Header("NIfTI", frames=min(_slices(header, _orientation(header)), MOST_SLICES))
    except _UNREADABLE as error:
        raise _damage_error(error) from None


def picture_of(content: bytes, frame: int) -> Picture:
    """Decode a slice, from 0 at the feet.

    Raises
    ------
    RefusedImageError
        It is damaged, too large, or has what is not read.
    """
    try:
        header = _header(_inflate(content, _HEADER_BYTES))
        orientation = _orientation(header)
        plane = _plane(_volume(content, header), orientation, frame)
        slope, intercept = header.get_slope_inter()
    except MemoryError:
        raise RefusedImageError("TooLarge", "the memory is not enough to decode it") from None
    except _UNREADABLE as error:
        raise _damage_error(error) from None
    values = np.ascontiguousarray(plane, np.float32)
    if slope is not None and (slope, intercept) != (1, 0):
        values = (plane * float(slope) + float(intercept)).astype(np.float32)
    if not np.isfinite(values).all():
        raise RefusedImageError("NotFinite", "values that are no numbers")
    facts = (f"NIfTI {header.get_data_dtype().name}", f"orientation {_orientation_name(orientation)}")
    size = (values.shape[1], values.shape[0])
    return Picture(
        values, size, "NIfTI", paged=_slices(header, orientation) > 1, measured=_measure(values), facts=facts
    )


def read_scan(file: Path) -> Scan:
    """Decode the volume of a file.

    Raises
    ------
    RefusedImageError
        It is damaged, too large, or has what is not read.
    """
    content = read_content(file, MOST_VOLUME_BYTES)
    try:
        header = _header(_inflate(content, _HEADER_BYTES))
        stated = tuple(int(side) for side in header.get_data_shape())
        if len(stated) > 4 and any(side != 1 for side in stated[4:]):
            raise RefusedImageError("Unsupported", f"{len(stated)} dimensions; save one volume per file")
        shape = (*stated, 1, 1, 1, 1)[:4]
        refuse_flat(shape[:3])
        refuse_large(shape, header.get_data_dtype().itemsize)
        axes = Axes.UNKNOWN if _orientation(header) is None else Axes.KNOWN
        grid = Grid((shape[0], shape[1], shape[2]), np.asarray(header.get_best_affine(), np.float64), axes)
        values = _rescale(_read_stored(content, header, shape, MOST_VOLUME_BYTES), *header.get_slope_inter())
    except MemoryError:
        raise RefusedImageError("TooLarge", "the memory is not enough to decode it") from None
    except _UNREADABLE as error:
        raise _damage_error(error) from None
    facts = (f"NIfTI {header.get_data_dtype().name}", *facts_of(grid))
    high = max(_measure(plane).high for plane in np.moveaxis(values, 3, 0))
    return Scan(values, grid, digest_of_volume(content), 0, high, facts=facts)


def _rescale(volume: NDArray[Any], slope: float | None, intercept: float | None) -> NDArray[np.float32]:
    """Return stored values [i, j, k, c] in their units, float32 [c, i, j, k], made a slice at a time."""
    values = np.empty(volume.shape[::-1], np.float32).T
    for channel in range(volume.shape[3]):
        for place in range(volume.shape[2]):
            plane = volume[:, :, place, channel]
            with np.errstate(over="ignore", invalid="ignore"):
                if slope is not None and (slope, intercept) != (1, 0):
                    plane = plane * float(slope) + float(intercept or 0)
                values[:, :, place, channel] = plane
    return np.moveaxis(values, 3, 0)


def write_classes(file: Path, classes: NDArray[np.uint8], grid: Grid) -> None:
    """Write the classes of voxels, uint8 [i, j, k], as NIfTI on a grid; the header has no texts, and no orientation where none is known."""
    if grid.axes is Axes.UNKNOWN:
        image = nibabel.Nifti1Image(classes, None)
        image.header.set_zooms(grid.spacing)
    else:
        image = nibabel.Nifti1Image(classes, grid.affine)
    image.header.set_xyzt_units("mm")
    nibabel.save(image, file)


def _damage_error(error: BaseException) -> RefusedImageError:
    """Return the refusal of a file that the library could not read; of its words the kind of error alone is told."""
    return RefusedImageError("Damaged", f"its header or values cannot be read ({type(error).__name__})")


def _inflate(content: bytes, most: int) -> bytes:
    """Return the first bytes of a file, inflated where it is compressed."""
    return zlib.decompressobj(31).decompress(content, most) if content.startswith(_GZIP) else content[:most]


def _header(beginning: bytes) -> Any:
    """Return the header of a file that begins so.

    Raises
    ------
    RefusedImageError
        It is the header of a pair of files.
    """
    sizes = {struct.unpack(f"{order}i", beginning[:4])[0] for order in "<>"}
    kind: Any = nibabel.Nifti2Header if _HEADER_BYTES in sizes else nibabel.Nifti1Header
    size = kind.template_dtype.itemsize
    header = kind(beginning[:size], check=False)
    if bytes(header["magic"])[:3] + b"\0" in _PAIRS:
        raise RefusedImageError("Unsupported", "a NIfTI pair of .hdr and .img; save it as one .nii or .nii.gz")
    return header


def _shape(header: Any) -> tuple[int, int, int]:
    """Return columns, rows and slices.

    Raises
    ------
    RefusedImageError
        It has more dimensions, or too many values.
    """
    stated = [int(side) for side in header.get_data_shape()]
    shape = (*stated, 1, 1, 1)[: max(3, len(stated))]
    if any(side < 1 for side in shape):
        raise RefusedImageError("Damaged", "a dimension of no values")
    if any(side != 1 for side in shape[3:]):
        raise RefusedImageError("Unsupported", f"{len(stated)} dimensions; save one volume per file")
    if math.prod(shape) * header.get_data_dtype().itemsize > MOST_SLICED_BYTES:
        most = f"at most {MOST_SLICED_BYTES // 2**20} MiB are decoded"
        raise RefusedImageError("TooLarge", f"{'×'.join(map(str, shape))} values of {header.get_data_dtype()}; {most}")
    return shape[0], shape[1], shape[2]


def _volume(content: bytes, header: Any) -> NDArray[Any]:
    """Return the values of a file as they are stored, [i, j, k]."""
    shape = _shape(header)
    if shape[0] * shape[1] > MOST_PIXELS:
        raise RefusedImageError("TooLarge", f"{shape[0]}×{shape[1]} pixels, at most {MOST_PIXELS} are decoded")
    return _read_stored(content, header, shape, MOST_SLICED_BYTES)


def _read_stored(content: bytes, header: Any, shape: tuple[int, ...], most: int) -> NDArray[Any]:
    """Return the values of a file as they are stored; its shape was compared with bounds."""
    dtype = header.get_data_dtype()
    if dtype.kind not in "uif":
        raise RefusedImageError("Unsupported", "values that are no single numbers, such as colours")
    start = int(header["vox_offset"])
    needed = start + math.prod(shape) * dtype.itemsize
    if not 0 <= start <= needed <= most + 2**24:
        raise RefusedImageError("TooLarge", "its values begin too far behind its header")
    voxel_bytes = _inflate(content, needed)
    if len(voxel_bytes) < needed:
        raise RefusedImageError("Damaged", "it ends before its last value")
    volume: NDArray[Any] = np.frombuffer(voxel_bytes, dtype, math.prod(shape), start).reshape(shape, order="F")
    return volume


def _orientation(header: Any) -> NDArray[np.float64] | None:
    """Return for each axis of a file which of right, front and head it leads to, 0 to 2, and whether it does (1) or away from it (-1), [3, 2].

    None: the header does not say.
    """
    if int(header["sform_code"]) <= 0 and int(header["qform_code"]) <= 0:
        return None
    orientation = _orientation_of(np.asarray(header.get_best_affine(), np.float64).tobytes())
    if not np.isfinite(orientation).all():
        raise RefusedImageError("Damaged", "axes that lead nowhere")
    return orientation


@lru_cache(64)
def _orientation_of(affine: bytes) -> NDArray[np.float64]:
    """Return the orientation of an affine, float64 [4, 4]; volumes of a site often share one, and finding it takes as long as inflating a slice."""
    orientation: NDArray[np.float64] = nibabel.orientations.io_orientation(np.frombuffer(affine).reshape(4, 4))
    orientation.setflags(write=False)  # one for all that ask
    return orientation


def _orientation_name(orientation: NDArray[np.float64] | None) -> str:
    """Return where the axes lead, such as ``RAS``."""
    if orientation is None:
        return "not stated"
    ends = ("LR", "PA", "IS")
    return "".join(ends[int(axis)][int(direction > 0)] for axis, direction in orientation)


def _slices(header: Any, orientation: NDArray[np.float64] | None) -> int:
    """Return the number of slices from the feet to the head."""
    return _shape(header)[2 if orientation is None else int(np.flatnonzero(orientation[:, 0] == 2)[0])]


def _plane(volume: NDArray[Any], orientation: NDArray[np.float64] | None, frame: int) -> NDArray[Any]:
    """Return a slice as it is shown, [rows, columns].

    Raises
    ------
    RefusedImageError
        The header does not say where left and right are.
    """
    if orientation is None:
        if volume.shape[2] > 1:
            detail = "a volume without orientation (sform and qform), so left and right are not known"
            raise RefusedImageError("Unsupported", detail)
        return volume[:, :, 0].T
    axis = int(np.flatnonzero(orientation[:, 0] == 2)[0])
    if not 0 <= frame < volume.shape[axis]:
        raise RefusedImageError("Damaged", f"it has {volume.shape[axis]} slices")
    place = frame if orientation[axis, 1] > 0 else volume.shape[axis] - 1 - frame
    plane = volume.take(place, axis)
    first, second = (row for row in range(3) if row != axis)
    if orientation[first, 0] == 1:  # towards the front comes first
        plane, first, second = plane.T, second, first
    columns, rows = -int(orientation[first, 1]), -int(orientation[second, 1])  # to the left, and to the back
    shown: NDArray[Any] = plane[::columns, ::rows].T
    return shown


def _measure(plane: NDArray[Any]) -> Measured:
    """Return what the values of a slice mean: whole numbers that fit into 16 bits have their range, others none."""
    least, most = float(plane.min()), float(plane.max())
    if least < 0 or most > WHITES[-1] or not (plane == np.rint(plane)).all():
        return Measured(0, math.inf)
    return Measured(0, next(white for white in WHITES if most <= white))

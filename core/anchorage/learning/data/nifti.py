"""NIfTI files to pictures: slices from the feet upwards, each as a radiologist sees it, with the patient's right on the left and the front on top.

So a slice of a DICOM series and that of its NIfTI conversion are the same picture. What a header states is compared with bounds before anything is
inflated. Texts of headers and extensions are not looked at: converters write patients' data there.
"""

import logging
import math
import struct
import zlib
from typing import Any, BinaryIO

import nibabel
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.imageglobals import logger as nibabel_logger
from nibabel.spatialimages import HeaderDataError
from nibabel.wrapstruct import WrapStructError
from numpy.typing import NDArray

from anchorage.learning.data.decoding import DAMAGE, MOST_PIXELS, WHITES, Measured, Picture, RefusedImageError
from anchorage.learning.data.headers import Header

MOST_VOLUME_BYTES = 512 * 2**20
"""Largest volume that is inflated."""
MOST_SLICES = 10_000
RULES = 1
"""Raised when this module makes other pixels of a file than before."""

_GZIP = b"\x1f\x8b"
_HEADER_BYTES = 540
_PAIRS = (b"ni1\0", b"ni2\0")

_UNREADABLE = (*DAMAGE, struct.error, zlib.error, AssertionError, WrapStructError, HeaderDataError, ImageFileError)
"""What the library raises on files that are damaged."""

nibabel_logger.setLevel(logging.CRITICAL + 1)  # it quotes values of headers

Image = nibabel.Nifti1Image | nibabel.Nifti2Image


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
        header = _header(_inflated(file.read(4096), _HEADER_BYTES))
        return Header("NIfTI", frames=min(_slices(header), MOST_SLICES))
    except _UNREADABLE as error:
        raise _damaged(error) from None


def picture_of(content: bytes, frame: int) -> Picture:
    """Decode a slice, from 0 at the feet.

    Raises
    ------
    RefusedImageError
        It is damaged, too large, or has what is not read.
    """
    try:
        image = _image(content)
        plane = _plane(image, frame)
    except MemoryError:
        raise RefusedImageError("TooLarge", "the memory is not enough to decode it") from None
    except _UNREADABLE as error:
        raise _damaged(error) from None
    values = np.ascontiguousarray(plane, np.float32)
    if not np.isfinite(values).all():
        raise RefusedImageError("NotFinite", "values that are no numbers")
    slices = _slices(image.header)
    codes = "".join(code or "?" for code in nibabel.orientations.aff2axcodes(image.affine))
    facts = (
        f"NIfTI {image.get_data_dtype().name}",
        f"orientation {codes if _orientation(image.header) is not None else 'not stated'}",
    )
    return Picture(
        values, (values.shape[1], values.shape[0]), "NIfTI", paged=slices > 1, measured=_measured(plane), facts=facts
    )


def _damaged(error: BaseException) -> RefusedImageError:
    """Return the refusal of a file that the library could not read; of its words the kind of error alone is told."""
    return RefusedImageError("Damaged", f"its header or values cannot be read ({type(error).__name__})")


def _inflated(content: bytes, most: int) -> bytes:
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
    if math.prod(shape) * header.get_data_dtype().itemsize > MOST_VOLUME_BYTES:
        most = f"at most {MOST_VOLUME_BYTES // 2**20} MiB are decoded"
        raise RefusedImageError("TooLarge", f"{'×'.join(map(str, shape))} values of {header.get_data_dtype()}; {most}")
    return shape[0], shape[1], shape[2]


def _image(content: bytes) -> Image:
    """Return an image whose values are read when they are asked for."""
    header = _header(_inflated(content, _HEADER_BYTES))
    shape, dtype = _shape(header), header.get_data_dtype()
    if dtype.kind not in "uif":
        raise RefusedImageError("Unsupported", "values that are no single numbers, such as colours")
    if shape[0] * shape[1] > MOST_PIXELS:
        raise RefusedImageError("TooLarge", f"{shape[0]}×{shape[1]} pixels, at most {MOST_PIXELS} are decoded")
    needed = int(header["vox_offset"]) + math.prod(shape) * dtype.itemsize
    if not 0 <= needed <= MOST_VOLUME_BYTES + 2**24:
        raise RefusedImageError("TooLarge", "its values begin too far behind its header")
    whole = _inflated(content, needed)
    if len(whole) < needed:
        raise RefusedImageError("Damaged", "it ends before its last value")
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    return kind.from_bytes(whole)


def _orientation(header: Any) -> NDArray[np.float64] | None:
    """Return for each axis of a file which of right, front and head it leads to, 0 to 2, and whether it does (1) or away from it (-1), [3, 2].

    None: the header does not say.
    """
    if int(header["sform_code"]) <= 0 and int(header["qform_code"]) <= 0:
        return None
    orientation: NDArray[np.float64] = nibabel.orientations.io_orientation(header.get_best_affine())
    if not np.isfinite(orientation).all():
        raise RefusedImageError("Damaged", "axes that lead nowhere")
    return orientation


def _slices(header: Any) -> int:
    """Return the number of slices from the feet to the head."""
    orientation = _orientation(header)
    return _shape(header)[2 if orientation is None else int(np.flatnonzero(orientation[:, 0] == 2)[0])]


def _plane(image: Image, frame: int) -> NDArray[Any]:
    """Return a slice as it is shown, [rows, columns].

    Raises
    ------
    RefusedImageError
        The header does not say where left and right are.
    """
    orientation, shape = _orientation(image.header), _shape(image.header)
    if orientation is None:
        if shape[2] > 1:
            raise RefusedImageError(
                "Unsupported", "a volume without orientation (sform and qform), so left and right are not known"
            )
        return _values(image, (slice(None), slice(None), 0)).T
    axis = int(np.flatnonzero(orientation[:, 0] == 2)[0])
    if not 0 <= frame < shape[axis]:
        raise RefusedImageError("Damaged", f"it has {shape[axis]} slices")
    upwards = orientation[axis, 1] > 0
    place: list[slice | int] = [slice(None)] * 3
    place[axis] = frame if upwards else shape[axis] - 1 - frame
    plane = _values(image, tuple(place))
    first, second = (row for row in range(3) if row != axis)
    if orientation[first, 0] == 1:  # towards the front comes first
        plane, first, second = plane.T, second, first
    plane = plane[
        :: -int(orientation[first, 1]), :: -int(orientation[second, 1])
    ]  # columns to the left, rows to the back
    return plane.T


def _values(image: Image, place: tuple[slice | int, ...]) -> NDArray[Any]:
    """Return some values of a volume, rescaled as its header says."""
    further = (0,) * (len(image.shape) - len(place))
    within = place[: len(image.shape)] if len(image.shape) < len(place) else place
    return np.asanyarray(image.dataobj[within + further])


def _measured(plane: NDArray[Any]) -> Measured:
    """Return what the values of a slice mean: whole numbers that fit into 16 bits have their range, others none."""
    least, most = float(plane.min()), float(plane.max())
    if least < 0 or most > WHITES[-1] or not (plane == np.rint(plane)).all():
        return Measured(0, math.inf)
    return Measured(0, next(white for white in WHITES if most <= white))

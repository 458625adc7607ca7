"""Masks: a class for each pixel of an image, in a file of its own that has the image's size."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import CLASSES_DIFFER
from anchorage.api.slot import unknown
from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.data.decoders import decoder_for, holds_scans, picture_of
from anchorage.learning.data.decoding import FORMATS, MOST_PIXELS, Fit, Input, RefusedImageError, fit_mask, read_content
from anchorage.learning.data.labels import LabelReader, ReadLabels
from anchorage.learning.data.sources import Series
from anchorage.learning.data.tables import Table

MASK_COLUMNS = ("mask", "masks", "mask_path", "mask_file", "segmentation")
"""Names under which a column of masks is found, in this order, in any case."""
NO_FOREGROUND = "no foreground"
"""Stratum of images whose masks are empty."""

_VALUES = 1 << 16
_NO_CLASS, _UNANNOTATED = 254, 253
"""In a table of classes by value: a value that is no class, and one of a class that the section says nobody drew."""
_SHOWN = 5
_OF_MASKS = {"TooLarge": "TooLarge", "NotFinite": "MaskValues", "Missing": "MaskMissing"}
"""Why a mask cannot be used, by why an image could not; others are MaskUnreadable."""
_ROUNDING_TOLERANCE = 1e-3
"""Distance to a whole number within which a measured value counts as that number."""
_GREY = ("1", "L", "P", "I", "I;16", "I;16B", "I;16L")
"""Pillow's names of pixel formats that hold one whole number per pixel."""


class MaskReader(LabelReader):
    """Says which images have a mask; what the masks show is read with the images.

    Parameters
    ----------
    classes : sequence of str
        The federation's classes, background first.
    volumes : bool
        Whether images are volumes: a NIfTI file, or a series of DICOM slices.
    """

    def __init__(self, classes: Sequence[str], *, volumes: bool = False) -> None:
        self.classes = tuple(classes)
        self.volumes = volumes

    def of_volumes(self) -> "MaskReader":
        """Return a reader of the same masks for images that are volumes."""
        return type(self)(self.classes, volumes=True)

    def read(self, names: Sequence[str], place: Path, kind: str) -> ReadLabels:
        """Return 0 for images with a mask and -1 for those without, int64 [n], of the masks' names."""
        labels = np.array([0 if name else -1 for name in names], np.int64)
        return ReadLabels(labels, labels, ("with a mask",))

    def read_table(self, table: Table, column: str | None, used_columns: set[str]) -> ReadLabels:
        """Return what `read` does for the column of masks.

        Raises
        ------
        AnchorageError
            MANIFEST_WRONG: the column that was asked for is not there.
        """
        return self.read(self.names(table, column), table.file, "mask")

    def names(self, table: Table, column: str | None) -> Sequence[str]:
        """Return the names of the masks in a table, empty where an image has none. Errors as of `read_table`."""
        mask_column = table.column(column, MASK_COLUMNS)
        return table.columns[mask_column] if mask_column else [""] * len(next(iter(table.columns.values())))

    def values(
        self, named: Mapping[str, str], ignored: int | None, unannotated: Sequence[str] = ()
    ) -> NDArray[np.uint8]:
        """Return the class of each value from 0 to 65535, uint8, `UNKNOWN_PIXEL` for the ignored one.

        Parameters
        ----------
        named : mapping of str to str
            Value to class. Empty: value i is class i. Else 0 is the background, unless it is named, too.
        ignored : int or None
            Value of pixels that no loss and no score counts.
        unannotated : sequence of str
            Classes that no mask has; one that has it all the same is refused.

        Raises
        ------
        AnchorageError
            CLASSES_DIFFER: a name is no class.
        """
        table = np.full(_VALUES, _NO_CLASS, np.uint8)
        table[: 1 if named else len(self.classes)] = np.arange(1 if named else len(self.classes))
        for value, name in named.items():
            if name not in self.classes:
                raise AnchorageError(CLASSES_DIFFER, f"maskValues: {unknown(name, self.classes)}, for {value}")
            table[int(value)] = self.classes.index(name)
        table[np.isin(table, [place for place, name in enumerate(self.classes) if name in unannotated])] = _UNANNOTATED
        if ignored is not None:
            table[ignored] = UNKNOWN_PIXEL
        return table

    def masks(self, files: "Sequence[Path | Series | None]", section: DataSection) -> "Masks":
        """Return the masks of a section's images, a file each, None without one. Errors as of `values`."""
        table = self.values(section.mask_values, section.ignored_value, section.unannotated)
        return Masks(tuple(files), table, self.classes, section.unannotated)


@dataclass(frozen=True, eq=False)
class Masks:
    """Where the masks of a listing's images lie, and what their values mean.

    Parameters
    ----------
    files : tuple of Path, Series or None
        A file per image, or a series where it is a volume; None: it has no mask.
    table : ndarray of uint8, shape [65536]
        As of `MaskReader.values`.
    classes : tuple of str
        The federation's classes, background first.
    unannotated : tuple of str
        Those of them that nobody drew.
    """

    files: "tuple[Path | Series | None, ...]"
    table: NDArray[np.uint8]
    classes: tuple[str, ...]
    unannotated: tuple[str, ...] = ()

    def select(self, rows: Sequence[int]) -> Self:
        """Return those of some images, in that order."""
        return replace(self, files=tuple(self.files[row] for row in rows))

    def room(self, size: int) -> "DecodedMasks":
        """Return room for all masks at a model's size."""
        count = len(self.files)
        pixels = np.full((count, size, size), UNKNOWN_PIXEL, np.uint8)
        return DecodedMasks(pixels, np.zeros((count, len(self.classes)), np.int64))

    def read(self, row: int, size: tuple[int, int]) -> NDArray[np.uint8]:
        """Return the classes of a mask's pixels, uint8 [h, w], of an image of this width and height.

        Raises
        ------
        RefusedImageError
            It cannot be used.
        """
        class_mask = self.original(row)
        if class_mask.shape != size[::-1]:
            detail = f"the mask has {class_mask.shape[1]}×{class_mask.shape[0]} pixels, the image {size[0]}×{size[1]}"
            raise RefusedImageError("MaskDiffers", detail)
        return class_mask

    def original(self, row: int) -> NDArray[np.uint8]:
        """Return the classes of a mask's pixels as its file has them, uint8 [h, w]. Errors as of `read`."""
        return classes_of(mask_values(self.files[row]), self.table, self.classes)


def classes_of(values: NDArray[Any], table: NDArray[np.uint8], classes: Sequence[str]) -> NDArray[np.uint8]:
    """Return the classes of a mask's values, whole numbers from 0 to 65535, uint8 in their shape.

    Parameters
    ----------
    values : ndarray
        Of pixels or voxels.
    table : ndarray of uint8, shape [65536]
        As of `MaskReader.values`.
    classes : sequence of str
        The federation's classes, background first.

    Raises
    ------
    RefusedImageError
        Some are no class, or one that nobody drew as the section says.
    """
    class_mask: NDArray[np.uint8] = table[values]
    if (class_mask == _NO_CLASS).any():
        raise RefusedImageError("MaskValues", _astray(values[class_mask == _NO_CLASS], classes))
    if (class_mask == _UNANNOTATED).any():
        shown = _format_counts(values[class_mask == _UNANNOTATED])
        raise RefusedImageError(
            "MaskValues", f"the values {shown} are of classes that unannotated names; remove those from unannotated"
        )
    return class_mask


def _astray(values: NDArray[Any], classes: Sequence[str]) -> str:
    """Say which values are no class, and how many pixels have them."""
    distinct_values, shown = np.unique(values), _format_counts(values)
    if len(distinct_values) > _SHOWN:
        return f"the values {shown} are no classes; save the mask unchanged, without JPEG or smooth edges"
    entry = f'{{"{distinct_values[-1]}": {classes[-1]}}}'
    return f"the values {shown} are no classes; name them, such as maskValues: {entry}, or as ignoredValue"


def _format_counts(values: NDArray[Any]) -> str:
    """Return the first of some values, each with its number of pixels."""
    distinct_values, counts = np.unique(values, return_counts=True)
    shown = ", ".join(
        f"{value} ({count} pixels)" for value, count in zip(distinct_values[:_SHOWN], counts, strict=False)
    )
    return f"{shown} and {len(distinct_values) - _SHOWN} more values" if len(distinct_values) > _SHOWN else shown


@dataclass(frozen=True, eq=False)
class DecodedMasks:
    """Masks of a listing's images.

    Parameters
    ----------
    pixels : ndarray of uint8, shape [n, size, size]
        Classes, `UNKNOWN_PIXEL` where nothing is known; of volumes [n, 8], a digest of each mask, which lies with the volume.
    counts : ndarray of int64, shape [n, C]
        Pixels of each class in the files.
    """

    pixels: NDArray[np.uint8]
    counts: NDArray[np.int64]

    def take(self, row: int, mask: NDArray[np.uint8], fit: Fit) -> None:
        """Fit a mask to the model as its image is fitted."""
        self.pixels[row] = fit_mask(mask, self.pixels.shape[1], fit, UNKNOWN_PIXEL)
        self.counts[row] = np.bincount(mask.ravel(), minlength=UNKNOWN_PIXEL + 1)[: self.counts.shape[1]]

    def strata(self) -> NDArray[np.int64]:
        """Return the foreground class with the most pixels of each image, int64 [n]: 0 where there is none, -1 without a mask."""
        foreground = self.counts[:, 1:]
        largest = np.where(foreground.any(1), foreground.argmax(1) + 1, 0)
        return np.where(self.counts.any(1), largest, -1)


def wants_volumes(reader: LabelReader) -> bool:
    """Return whether the images whose labels are read are volumes."""
    return isinstance(reader, MaskReader) and reader.volumes


def mask_values(file: Path | Series | None) -> NDArray[Any]:
    """Return the values of a mask's pixels, whole numbers from 0 to 65535, [h, w], upright.

    Raises
    ------
    RefusedImageError
        As `Masks.read`.
    """
    if file is not None and not isinstance(file, Path):
        raise RefusedImageError("MaskUnreadable", "the mask is a series, where a picture is needed")
    content, name = read_content(file), "" if file is None else file.name
    version = decoder_for(content, name)
    if version is None or not holds_scans(version):
        return _open(content)
    try:
        pixels = picture_of(content, name, Input(1, 1))[0].pixels
    except RefusedImageError as refused:
        raise as_of_mask(refused) from None
    if pixels.ndim > 2:
        raise RefusedImageError("MaskInColour", "the mask is in colour; save it in grey, with a whole number per class")
    return whole_numbers(pixels)


def as_of_mask(refused: RefusedImageError) -> RefusedImageError:
    """Return the refusal of a mask that was read as an image."""
    if refused.reason.startswith("Mask"):
        return refused
    return RefusedImageError(_OF_MASKS.get(refused.reason, "MaskUnreadable"), f"the mask: {refused.detail}")


def whole_numbers(values: NDArray[Any]) -> NDArray[np.uint16]:
    """Return a mask's values that a scan's decoder read as whole numbers from 0 to 65535, in their shape.

    Raises
    ------
    RefusedImageError
        Some are further than 0.001 from a whole number, or outside of 0 to 65535.
    """
    numbers = np.empty(values.shape, np.uint16)
    between, least, most = 0, np.inf, -np.inf
    for place in range(values.shape[-1]):  # a slice at a time: a volume takes much memory
        plane = values[..., place]
        rounded = np.rint(plane)
        between += int(np.count_nonzero(np.abs(rounded - plane) > _ROUNDING_TOLERANCE))
        least, most = min(least, float(rounded.min())), max(most, float(rounded.max()))
        numbers[..., place] = rounded.clip(0, _VALUES - 1)
    if between:
        detail = f"{between} values of the mask lie between whole numbers; save it unchanged, without interpolation"
        raise RefusedImageError("MaskValues", detail)
    if least < 0 or most >= _VALUES:
        raise RefusedImageError("MaskValues", f"the mask has values from {least:g} to {most:g}")
    return numbers


def _open(content: bytes) -> NDArray[Any]:
    """Return the values of a mask's pixels, whole numbers from 0 to 65535, [h, w], upright.

    Raises
    ------
    RefusedImageError
        It is no image, damaged, too large, in colour, or has other numbers.
    """
    try:
        with Image.open(io.BytesIO(content), formats=tuple(FORMATS)) as image:
            if image.width * image.height > MOST_PIXELS:
                detail = f"the mask has {image.width}×{image.height} pixels, at most {MOST_PIXELS} are decoded"
                raise RefusedImageError("TooLarge", detail)
            image.load()
            return _whole_numbers(ImageOps.exif_transpose(image))
    except (Image.DecompressionBombError, UnidentifiedImageError) as error:
        raise RefusedImageError("MaskUnreadable", "the mask is no image that is read") from error
    except (OSError, ValueError, ArithmeticError, LookupError, SyntaxError, EOFError, TypeError) as error:
        raise RefusedImageError("MaskUnreadable", f"the mask is damaged: {error}") from error


def _whole_numbers(image: Image.Image) -> NDArray[Any]:
    if image.mode in _GREY:
        values = np.asarray(image)
        if values.dtype == np.bool_:
            return values.astype(np.uint8)
        if values.min() < 0 or values.max() >= _VALUES:
            raise RefusedImageError("MaskValues", f"the mask has values from {values.min()} to {values.max()}")
        return values.astype(np.uint16) if values.dtype.kind == "i" else values
    bands = [np.asarray(band) for band in image.split()]
    if image.mode in ("LA", "RGBA") and (bands[-1] == 255).all():
        bands = bands[:-1]
    if image.mode not in ("LA", "RGB", "RGBA") or any((band != bands[0]).any() for band in bands):
        detail = f"the mask has the pixel format {image.mode}; save it in grey, with a whole number per class"
        raise RefusedImageError("MaskInColour", detail)
    return bands[0]

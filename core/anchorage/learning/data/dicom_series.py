"""Series of DICOM slices, and objects of several frames, to volumes (PS3.3 C.7.6.2, C.7.6.16).

Where a slice lies is said by its position and direction alone: never by a file's name, InstanceNumber, SliceLocation, or SliceThickness. What is
refused names no header's text: places are numbers along the series.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.tag import Tag

from anchorage.api.regular_files import open_regular
from anchorage.learning.data.decoding import Measured, RefusedImageError, read_content
from anchorage.learning.data.dicom import CAPTURES, IMAGES, functional_group, pictures_of
from anchorage.learning.data.dicom_pixels import MOST_FRAMES, UNREADABLE, inflate
from anchorage.learning.data.grids import LEAST_SLICES, MOST_VOLUME_BYTES, Grid, refuse_large
from anchorage.learning.data.scans import Scan, digest_of_volume, facts_of

_ELEMENTS = (
    "SOPClassUID", "SeriesInstanceUID", "ImageType", "Rows", "Columns", "NumberOfFrames", "BitsAllocated", "PixelRepresentation",
    "ImageOrientationPatient", "ImagePositionPatient", "PixelSpacing", "EchoNumbers", "TemporalPositionIdentifier", "AcquisitionNumber",
    "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence",
)  # fmt: skip
_TAGS = [Tag(name) for name in _ELEMENTS]
_ALIKE = 1e-4
"""By which directions and spacings of one volume's slices may differ."""
_SAME_PLACE_MM = 0.01
_SHARE, _LEAST_MM = 0.01, 0.05
"""By which distances of neighbours may differ: a share of the usual one, or mm, whichever is more."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """A frame of a file, and where it lies."""

    file: Path
    frame: int
    series: str
    size: tuple[int, int]
    """Rows and columns."""
    direction: tuple[float, ...]
    """Of a row, then of a column, to the left, the back and the head: six cosines."""
    position: tuple[float, ...]
    """Of the first voxel, mm, to the left, the back and the head."""
    spacing: tuple[float, ...]
    """Of rows, then of columns, mm."""
    kind: tuple[str, ...]
    """What parts the volumes of a series that lie at the same places, such as echo and time."""
    dtype: str


@dataclass(slots=True)
class _Decoded:
    """The slices of a volume as they are decoded; float32 [slices, rows, columns]."""

    values: NDArray[np.float32]
    padding: NDArray[np.bool_] | None = None
    ends: list[tuple[float, float]] = field(default_factory=list)
    inverted: set[bool] = field(default_factory=set)
    facts: dict[str, None] = field(default_factory=dict)
    filled: set[int] = field(default_factory=set)
    equal: int = 0
    """Slices that are another slice again."""


def read_series(files: Sequence[Path]) -> Scan:
    """Decode the volume of a series.

    Parameters
    ----------
    files : sequence of Path
        Its files, in any order.

    Raises
    ------
    RefusedImageError
        Some are damaged, or they are too large, or no volume: `MixedSeries`, `Gap`, `DuplicateSlice`, `Sheared`.
    """
    if len(files) > MOST_FRAMES:
        raise RefusedImageError("TooLarge", f"{len(files)} files, at most {MOST_FRAMES} are read")
    try:
        slices, left_out = _slices_of(files)
        _refuse_mixed(slices)
        places = _places_of(slices)
        grid = _grid_of([place[0] for place in places])
        decoded, digest = _decode(places)
    except MemoryError:
        raise RefusedImageError("TooLarge", "the memory is not enough to decode it") from None
    except UNREADABLE as error:
        raise RefusedImageError("Damaged", f"a header or pixels cannot be read ({type(error).__name__})") from None
    if len(decoded.inverted) > 1:
        raise RefusedImageError("MixedSeries", "slices of MONOCHROME1 and of MONOCHROME2")
    if decoded.equal:
        left_out["equal slices"] = decoded.equal
    facts = (f"DICOM {slices[0].dtype}", *decoded.facts, *facts_of(grid))
    return Scan(
        decoded.values.T[None],
        grid,
        digest,
        min(low for low, _ in decoded.ends),
        max(high for _, high in decoded.ends),
        None if decoded.padding is None else decoded.padding.T,
        decoded.inverted == {True},
        (*facts, *(f"{what} left out: {count}" for what, count in left_out.items())),
    )


def _slices_of(files: Sequence[Path]) -> tuple[list[_Slice], Counter[str]]:
    """Return the slices of files, and how many objects are none, by kind."""
    slices: list[_Slice] = []
    left_out: Counter[str] = Counter()
    for file in files:
        with open_regular(file) as opened:
            dataset = pydicom.dcmread(inflate(opened), stop_before_pixels=True, force=True, specific_tags=_TAGS)
        kind = str(dataset.get("SOPClassUID", "")).strip()
        if "LOCALIZER" in (dataset.get("ImageType") or ()):
            left_out["localisers"] += 1
        elif kind in CAPTURES or (kind and kind not in IMAGES):
            left_out["captures and other objects"] += 1
        else:
            slices += _frames_of(file, dataset)
        if len(slices) > MOST_FRAMES:
            raise RefusedImageError("TooLarge", f"more than {MOST_FRAMES} slices")
    if len(slices) < LEAST_SLICES:
        raise RefusedImageError(
            "Unsupported", f"{len(slices)} slices, which are no volume: it has {LEAST_SLICES} or more"
        )
    return slices, left_out


def _frames_of(file: Path, dataset: Dataset) -> Iterator[_Slice]:
    """Yield the slices of a file."""
    frames = int(dataset.get("NumberOfFrames") or 1)
    if not 0 < frames <= MOST_FRAMES:
        raise RefusedImageError("TooLarge", f"{frames} frames; at most {MOST_FRAMES} are decoded")
    frame_groups = dataset.get("PerFrameFunctionalGroupsSequence")
    if frame_groups and len(frame_groups) != frames:
        raise RefusedImageError("Damaged", f"{frames} frames, but places of {len(frame_groups)}")
    size = (int(dataset.Rows), int(dataset.Columns))
    signed, bits = int(dataset.get("PixelRepresentation") or 0) == 1, int(dataset.BitsAllocated)
    for frame in range(frames):
        groups = {
            name: functional_group(dataset, frame, f"{name}Sequence")
            for name in ("PlanePosition", "PlaneOrientation", "PixelMeasures", "FrameContent", "MREcho")
        }
        if frames > 1 and groups["PlanePosition"] is None:
            raise RefusedImageError("Unsupported", "frames without a position, so their volume is not known")
        content, echo = groups["FrameContent"], groups["MREcho"]
        yield _Slice(
            file,
            frame,
            str(dataset.get("SeriesInstanceUID", "")).strip(" \0"),
            size,
            _numbers(groups["PlaneOrientation"] or dataset, "ImageOrientationPatient", 6),
            _numbers(groups["PlanePosition"] or dataset, "ImagePositionPatient", 3),
            _numbers(groups["PixelMeasures"] or dataset, "PixelSpacing", 2),
            (
                *_texts(dataset, "EchoNumbers", "TemporalPositionIdentifier", "AcquisitionNumber"),
                *_texts(content, "StackID", "TemporalPositionIndex"),
                *_texts(echo, "EffectiveEchoTime"),
            ),
            f"{'int' if signed else 'uint'}{bits}",
        )


def _numbers(source: Dataset, name: str, count: int) -> tuple[float, ...]:
    """Return the numbers of an element.

    Raises
    ------
    RefusedImageError
        It is not there, or has others.
    """
    value = source.get(name)
    if not value:
        raise RefusedImageError("Unsupported", f"slices without {name}, so their volume is not known")
    numbers = tuple(float(number) for number in value)
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise RefusedImageError("Damaged", f"{name} that is not {count} numbers")
    return numbers


def _texts(source: Dataset | None, *names: str) -> tuple[str, ...]:
    """Return elements to be compared; nothing of them is told."""
    return tuple("" if source is None else str(source.get(name, "")) for name in names)


def _refuse_mixed(slices: Sequence[_Slice]) -> None:
    """Refuse slices that are not of one series, size, direction and spacing.

    Raises
    ------
    RefusedImageError
        They are not.
    """
    if (count := len({each.series for each in slices})) > 1:
        raise RefusedImageError("MixedSeries", f"slices of {count} series")
    if others := sum(not _alike(each, slices[0]) for each in slices):
        detail = f"{others} of {len(slices)} slices have another size, direction or spacing than the others"
        raise RefusedImageError("MixedSeries", detail)


def _alike(one: _Slice, other: _Slice) -> bool:
    pairs = ((one.direction, other.direction), (one.spacing, other.spacing))
    return one.size == other.size and all(np.abs(np.subtract(*pair)).max() <= _ALIKE for pair in pairs)


def _places_of(slices: Sequence[_Slice]) -> list[list[_Slice]]:
    """Return the slices of each place, along the normal of the slices.

    Raises
    ------
    RefusedImageError
        They are of several volumes, or too few.
    """
    normal = _normal(slices[0])
    ordered = sorted(((float(np.dot(each.position, normal)), each) for each in slices), key=lambda pair: pair[0])
    places: list[list[_Slice]] = []
    begin = -np.inf
    for depth, each in ordered:
        if depth - begin > _SAME_PLACE_MM:
            places.append([each])
            begin = depth
            continue
        first = places[-1][0]
        if each.kind != first.kind or np.abs(np.subtract(each.position, first.position)).max() > _SAME_PLACE_MM:
            detail = "several slices at a place, of several echoes, times, acquisitions or stacks"
            raise RefusedImageError("MixedSeries", f"{detail}; export each as a series of its own")
        places[-1].append(each)
    if len(places) < LEAST_SLICES:
        raise RefusedImageError(
            "Unsupported", f"slices at {len(places)} places, which are no volume: it has {LEAST_SLICES} or more"
        )
    return places


def _normal(slice_: _Slice) -> NDArray[np.float64]:
    """Return the direction in which slices follow each other.

    Raises
    ------
    RefusedImageError
        Rows and columns are not at right angles.
    """
    row, column = np.array(slice_.direction[:3]), np.array(slice_.direction[3:])
    lengths = np.linalg.norm(row), np.linalg.norm(column)
    if not np.allclose(lengths, 1, atol=_SHARE) or abs(row @ column) > _SHARE:
        raise RefusedImageError("Damaged", "directions of rows and columns that are not at right angles")
    normal: NDArray[np.float64] = np.cross(row, column)
    return normal / np.linalg.norm(normal)


def _grid_of(slices: Sequence[_Slice]) -> Grid:
    """Return where the voxels of slices lie, one of each place, in their order.

    Raises
    ------
    RefusedImageError
        `Gap`: the places are not equally far apart. `Sheared`: they are shifted against each other.
    """
    first, normal = slices[0], _normal(slices[0])
    if min(first.spacing) <= 0:
        raise RefusedImageError("Damaged", "a spacing of nothing")
    positions = np.array([each.position for each in slices])
    steps = np.diff(positions, axis=0)
    along = steps @ normal
    usual = float(np.median(along))
    allowed = max(_SHARE * usual, _LEAST_MM)
    if (uneven := np.abs(along - usual) > allowed).any():
        place = int(np.flatnonzero(uneven)[np.abs(along[uneven] - usual).argmax()])
        detail = f"slices {place + 1} and {place + 2} of {len(slices)} lie {along[place]:.2f} mm apart, others {usual:.2f} mm"
        raise RefusedImageError("Gap", detail)
    extent = positions[-1] - positions[0]
    sideways = np.linalg.norm(steps - np.outer(along, normal), axis=1)
    total = float(np.linalg.norm(extent - (extent @ normal) * normal))
    if sideways.max() > allowed or total > max(_SHARE * float(extent @ normal), _LEAST_MM):
        detail = f"each slice is shifted sideways by up to {sideways.max():.2f} mm, as by a tilted gantry; correct the tilt before"
        raise RefusedImageError("Sheared", detail)
    affine = np.eye(4)
    affine[:3, 0] = np.array(first.direction[:3]) * first.spacing[1]
    affine[:3, 1] = np.array(first.direction[3:]) * first.spacing[0]
    affine[:3, 2] = extent / (len(slices) - 1)
    affine[:3, 3] = positions[0]
    rows, columns = first.size
    return Grid((columns, rows, len(slices)), np.diag([-1.0, -1, 1, 1]) @ affine)


def _decode(places: Sequence[Sequence[_Slice]]) -> tuple[_Decoded, bytes]:
    """Decode the slices of all places, a file at a time; return the digest of the files behind them.

    Raises
    ------
    RefusedImageError
        `DuplicateSlice`: different ones at a place. Or as of `anchorage.learning.data.dicom.picture_of`.
    """
    rows, columns = places[0][0].size
    shape = (len(places), rows, columns)
    refuse_large(shape, 4)
    decoded = _Decoded(np.empty(shape, np.float32))
    of_files: dict[Path, list[tuple[int, _Slice]]] = {}
    for place, slices in enumerate(places):
        for each in slices:
            of_files.setdefault(each.file, []).append((place, each))
    digests = []
    for file, listed in of_files.items():
        content = read_content(file, MOST_VOLUME_BYTES)
        digests.append(digest_of_volume(content))
        pictures = pictures_of(content, [each.frame for _, each in listed])
        for (place, _), picture in zip(listed, pictures, strict=True):
            if picture.measured is None:
                raise RefusedImageError("Unsupported", "slices in colour")
            decoded.facts.update(dict.fromkeys(fact for fact in picture.facts if "window" not in fact))
            _put(decoded, place, np.asarray(picture.pixels, np.float32), picture.measured)
    digest = digests[0] if len(digests) == 1 else digest_of_volume(b"".join(sorted(digests)))
    return decoded, digest


def _put(decoded: _Decoded, place: int, values: NDArray[np.float32], measured: Measured) -> None:
    """Put a slice at its place."""
    if values.shape != decoded.values.shape[1:]:
        raise RefusedImageError("Damaged", "pixels of another size than the header says")
    if not np.isfinite(values).all():
        raise RefusedImageError("NotFinite", "values that are no numbers")
    if place in decoded.filled:
        if not np.array_equal(decoded.values[place], values):
            detail = f"slice {place + 1} of {len(decoded.values)} is there twice, with other pixels"
            raise RefusedImageError("DuplicateSlice", detail)
        decoded.equal += 1
        return
    decoded.filled.add(place)
    decoded.values[place] = values
    decoded.ends.append((measured.low, measured.high))
    decoded.inverted.add(measured.inverted)
    if measured.padding is not None:
        if decoded.padding is None:
            decoded.padding = np.zeros(decoded.values.shape, np.bool_)
        decoded.padding[place] = measured.padding

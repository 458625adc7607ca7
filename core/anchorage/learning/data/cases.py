"""The volumes of a case, image and mask, as a model takes them.

A volume is turned so that its axes lead to the right, the front and the head (or stays as it is stored, where the model says so), brought to the
model's spacing, linearly between voxels, and shown by the model's intensity in this order; its statistics, such as the mean of `zScore`, are those of
the volume at the model's spacing without padding. A mask has the grid of its image, and takes the nearest voxel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.model import NanVoxels, Orientation
from anchorage.api.piece_faults import WrongResultError, describe_value, returned_by
from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.data.decoders import HEAD_BYTES, decoder_for, decoders
from anchorage.learning.data.decoding import (
    Intensity,
    Measured,
    Picture,
    RefusedImageError,
    not_an_image,
    read_beginning,
)
from anchorage.learning.data.grids import Axes, Grid, nearest_on_grid_of_model, on_grid_of_model, refuse_large, respace
from anchorage.learning.data.masks import as_of_mask, classes_of, whole_numbers
from anchorage.learning.data.scans import Scan, digest_of_volume, refuse_flat
from anchorage.learning.data.sources import Channels, Series

RANGES = tuple(2**bits - 1 for bits in (8, 12, 16, 20, 24))
"""Ends of ranges of values."""
VALUES_UP_TO = "values up to "
"""Begins the fact that says which of `RANGES` a volume's values reach, by which people are told how the scales of sites differ."""
WHITE = 65535
"""Level of white in a case; 0 is black."""


N = TypeVar("N", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A volume and its mask, as a model takes them.

    Parameters
    ----------
    values : ndarray of uint16, shape [channels, x, y, z]
        Shades from 0, black, to 65535, white, on the model's grid: to the right, the front and the head.
    mask : ndarray of uint8, shape [x, y, z], or None
        Classes, `UNKNOWN_PIXEL` where nothing is known; None: the case has no mask.
    counts : ndarray of int64, shape [C]
        Voxels of each class in the mask's file.
    grid, model_grid : Grid
        Of the file, and of the values.
    facts, digest, decoder
        As of `anchorage.learning.data.scans.Scan`; facts have a range of values (`VALUES_UP_TO`), too.
    """

    values: NDArray[np.uint16]
    mask: NDArray[np.uint8] | None
    counts: NDArray[np.int64]
    grid: Grid
    model_grid: Grid
    facts: tuple[str, ...]
    digest: bytes
    decoder: str

    mode: ClassVar[str] = "volume"
    white: ClassVar[None] = None
    paged: ClassVar[bool] = False
    few_values: ClassVar[bool] = False
    above: ClassVar[float] = 0.0
    """As of `anchorage.learning.data.report.Decodable`."""

    @property
    def size(self) -> tuple[int, int, int]:
        """Voxels along each axis of the file."""
        return self.grid.shape


def case_of(
    source: Path | Series | Channels,
    mask: Path | Series | None,
    channels: int,
    spacing: tuple[float, float, float],
    intensity: Intensity | None,
    table: NDArray[np.uint8],
    classes: Sequence[str],
    nan: NanVoxels = "Refuse",
    orientation: Orientation = "Anatomical",
) -> Case:
    """Read a case.

    Parameters
    ----------
    source : Path, Series or Channels
        The volume: one file, the files of a series, or a file or series for each channel.
    mask : Path, Series or None
        Its mask, on the same grid; None: it has none.
    channels : int
        Of the model's input.
    spacing : tuple of float
        Distance of neighbouring voxels to the right, the front and the head, mm.
    intensity : callable or None
        As of `anchorage.learning.data.decoders.shades_of`.
    table : ndarray of uint8, shape [65536]
        As of `anchorage.learning.data.masks.MaskReader.values`.
    classes : sequence of str
        The federation's classes, background first.
    nan : str
        What becomes of the image's voxels that are no numbers.
    orientation : str
        Whether image and mask are turned.

    Raises
    ------
    RefusedImageError
        Image or mask cannot be used.
    AnchorageError
        PACKAGE_MISSING: their decoder is not installed. PIECE_WRONG: a decoder of another package returned no volume.
    """
    scan = read_scan(source, channels, nan, orientation)
    if bool((scan.values == scan.values.flat[0]).all()):
        raise RefusedImageError("Blank", "every voxel has the same value")
    largest = next((end for end in RANGES if float(scan.values.max()) <= end), RANGES[-1])
    grid, facts = scan.grid, (*scan.facts, f"{VALUES_UP_TO}{largest}")
    digest, decoder = scan.digest, scan.decoder
    wanted = respace(grid, spacing)
    refuse_large((channels, *wanted.shape), 4)
    values, padding = on_model_grid(scan, wanted)
    limits, inverted = (scan.low, scan.high), scan.inverted
    del scan  # the image needs no memory any more while its mask is read
    levels = levels_of(values, limits, padding, intensity, inverted=inverted)
    del values
    counts, placed = np.zeros(len(classes), np.int64), None
    if mask is not None:
        stored = read_mask(mask, grid, table, classes)
        for plane in stored:
            counts += np.bincount(plane.ravel(), minlength=UNKNOWN_PIXEL + 1)[: len(classes)]
        placed = nearest_on_grid_of_model(stored, grid, wanted)
    return Case(levels, placed, counts, grid, wanted, facts, digest, decoder)


def read_scan(
    source: Path | Series | Channels,
    channels: int = 1,
    nan: NanVoxels = "Refuse",
    orientation: Orientation = "Anatomical",
) -> Scan:
    """Read a volume by the decoder that recognises its file, or the first file of its series.

    Parameters
    ----------
    source : Path, Series or Channels
        One file, the files of a series, or a file or series for each channel.
    channels : int
        How many it must have.
    nan : str
        What becomes of voxels that are no numbers.
    orientation : str
        Whether its grid turns it.

    Raises
    ------
    RefusedImageError
        It cannot be used.
    AnchorageError
        PACKAGE_MISSING, PIECE_WRONG.
    """
    if isinstance(source, Channels):
        return _read_channels(source, channels, nan, orientation)
    files = source.files if isinstance(source, Series) else (source,)
    if not files:
        raise RefusedImageError("Missing", "no such file")
    head = read_beginning(files[0], HEAD_BYTES)
    if (version := decoder_for(head, files[0].name)) is None:
        raise not_an_image(head)
    decoder = decoders()[version]
    scan = decoder.scan(files)
    with returned_by(decoder, "scan"):
        if not isinstance(scan, Scan) or scan.values.dtype != np.float32 or scan.values.shape[1:] != scan.grid.shape:
            raise WrongResultError(
                describe_value(scan), "a Scan with values of float32 [c, i, j, k] that fill its grid"
            )
    refuse_flat(scan.grid.shape)
    if len(scan.values) != channels:
        others = "; name the files of the others by channelFiles" if len(scan.values) == 1 else ""
        raise RefusedImageError("Unsupported", f"{len(scan.values)} channels, but {channels} are needed{others}")
    if orientation == "AsStored":
        scan = replace(scan, grid=scan.grid.without_turning())
    elif scan.grid.axes is Axes.UNKNOWN:
        detail = "a volume without orientation (sform and qform), so left and right are not known"
        advice = "spec.model.volume.orientation: AsStored takes axes as all files store them"
        raise RefusedImageError("Unsupported", f"{detail}; {advice}")
    return replace(_of_numbers(scan, nan), decoder=version)


def _of_numbers(scan: Scan, nan: NanVoxels) -> Scan:
    """Return a volume whose values are finite."""
    if _is_finite(scan.values):
        return scan
    if nan == "Zero":
        values = np.where(np.isnan(scan.values), np.float32(0), scan.values)
        if _is_finite(values):
            return replace(scan, values=values, facts=(*scan.facts, "NaN read as 0"))
    advice = (
        "; spec.model.volume.nanVoxels: Zero reads NaN as 0" if nan == "Refuse" and np.isnan(scan.values).any() else ""
    )
    raise RefusedImageError("NotFinite", f"values that are no numbers{advice}")


def _is_finite(values: NDArray[np.float32]) -> bool:
    """Return whether all values [c, i, j, k] are finite; a slice at a time, for memory."""
    return all(bool(np.isfinite(values[..., place]).all()) for place in range(values.shape[3]))


def _read_channels(source: Channels, channels: int, nan: NanVoxels, orientation: Orientation) -> Scan:
    """Read a volume whose channels are files or series of their own, on the grid of the first. Errors as of `read_scan`."""
    if len(source.parts) != channels:
        raise RefusedImageError("Unsupported", f"{len(source.parts)} channels, but {channels} are needed")
    first = read_scan(source.parts[0], nan=nan, orientation=orientation)
    refuse_large((channels, *first.grid.shape), 4)
    values = np.empty((channels, *first.grid.shape), np.float32)
    values[0] = first.values[0]
    scan = replace(first, values=values)
    for channel, part in enumerate(source.parts[1:], 1):
        further = read_scan(part, nan=nan, orientation=orientation)
        if not scan.grid.is_near(further.grid):
            message = _difference(f"channel {channel + 1}", further.grid, "channel 1", scan.grid)
            raise RefusedImageError("ChannelsDiffer", f"{message}; bring all to one grid, that of the masks")
        if further.inverted != scan.inverted:
            raise RefusedImageError("Unsupported", "channels of which some show large values dark (MONOCHROME1)")
        values[channel] = _on_grid(further.values[0], further.grid, scan.grid)
        padding = None if further.padding is None else _on_grid(further.padding, further.grid, scan.grid)
        scan = replace(
            scan,
            digest=digest_of_volume(scan.digest + further.digest),
            low=min(scan.low, further.low),
            high=max(scan.high, further.high),
            padding=_either(scan.padding, padding),
            facts=tuple(dict.fromkeys((*scan.facts, *further.facts))),
        )
    return scan


def _on_grid(values: NDArray[N], grid: Grid, wanted: Grid) -> NDArray[N]:
    """Return values [i, j, k] in the order of the axes of another grid with the same voxels."""
    return wanted.as_stored(grid.upright(values))


def _either(one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Return where one of two volumes has padding, or None where neither has any."""
    return other if one is None else one if other is None else one | other


def on_model_grid(scan: Scan, wanted: Grid) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
    """Return the values of a volume and its padding at a model's spacing, float32 [c, x, y, z] and bool [x, y, z].

    Padding has the least value of the image, so that it does not darken the image's border.

    Parameters
    ----------
    scan : Scan
        The volume.
    wanted : Grid
        What `anchorage.learning.data.grids.respace` returns of its grid.
    """
    values = scan.values
    if scan.padding is None or scan.padding.all():
        return on_grid_of_model(values, scan.grid, wanted), None
    least = values.min(axis=(1, 2, 3), where=~scan.padding, initial=np.inf, keepdims=True)
    filled = np.where(scan.padding, least, values)
    padding = nearest_on_grid_of_model(scan.padding, scan.grid, wanted)
    return on_grid_of_model(filled, scan.grid, wanted), padding


def levels_of(
    values: NDArray[np.float32],
    limits: tuple[float, float],
    padding: NDArray[np.bool_] | None,
    intensity: Intensity | None,
    *,
    inverted: bool = False,
) -> NDArray[np.uint16]:
    """Return the levels that a model sees, uint16 [c, x, y, z]: 0 is black, 65535 white; each channel by its own statistics.

    Parameters
    ----------
    values : ndarray of float32, shape [c, x, y, z]
        In the units of the file.
    limits : tuple of float
        Least and largest value that the file's bits can hold; infinite where that is not known.
    padding : ndarray of bool, shape [x, y, z], or None
        What is black, and counts in no statistic.
    intensity : callable or None
        Values to shades; None: the limits are black and white.
    inverted : bool
        Whether large values are dark.

    Raises
    ------
    RefusedImageError
        The limits are not known, and without an intensity they are needed.
    """
    levels = np.empty(values.shape, np.uint16)
    low, high = limits
    for channel, volume in enumerate(values):
        measured = Measured(low, high, None, inverted, padding)
        size = (volume.shape[0], volume.shape[1])
        shades = None if intensity is None else intensity(Picture(volume, size, "volume", measured=measured))
        if shades is None:
            if not high - low < np.inf:
                detail = "values whose range is not known; set spec.model.intensity to window, percentiles or zScore"
                raise RefusedImageError("Unsupported", detail)
            shades = (volume - np.float32(low)) / np.float32(high - low)
        np.clip(shades, 0, 1, out=shades)
        if inverted:
            np.subtract(1, shades, out=shades)
        if padding is not None:
            shades[padding] = 0
        shades *= WHITE
        levels[channel] = np.rint(shades, out=shades)
    return levels


def read_mask(source: Path | Series, grid: Grid, table: NDArray[np.uint8], classes: Sequence[str]) -> NDArray[np.uint8]:
    """Return the classes of a mask's voxels on the grid of its image, uint8 [i, j, k].

    Parameters
    ----------
    source : Path or Series
        The mask.
    grid : Grid
        Of the image.
    table, classes
        As of `case_of`.

    Raises
    ------
    RefusedImageError
        It cannot be used, or has another grid.
    AnchorageError
        PACKAGE_MISSING, PIECE_WRONG.
    """
    orientation: Orientation = "Anatomical" if grid.axes is Axes.KNOWN else "AsStored"
    class_mask, mask_grid = read_original_mask(source, table, classes, orientation, grid)
    return _on_grid(class_mask, mask_grid, grid)


def read_original_mask(
    source: Path | Series,
    table: NDArray[np.uint8],
    classes: Sequence[str],
    orientation: Orientation,
    grid: Grid | None = None,
) -> tuple[NDArray[np.uint8], Grid]:
    """Return the classes of a mask's voxels as its file has them, uint8 [i, j, k], and its grid, which is near that of its image, if that is given.

    Parameters and errors as of `read_mask`; `orientation` as of `read_scan`.
    """
    try:
        scan = read_scan(source, orientation=orientation)
    except RefusedImageError as refused:
        raise as_of_mask(refused) from None
    if grid is not None and not grid.is_near(scan.grid):
        raise RefusedImageError("MaskDiffers", _difference("the mask", scan.grid, "the image", grid))
    return classes_of(whole_numbers(scan.values[0]), table, classes), scan.grid


def _difference(one: str, grid: Grid, other: str, other_grid: Grid) -> str:
    """Say how the grid of one volume, such as a mask, differs from that of another."""
    turned, other_turned = grid.turn(), other_grid.turn()
    if turned.shape != other_turned.shape:
        size, other_size = ("×".join(map(str, each.shape)) for each in (turned, other_turned))
        return f"{one} has {size} voxels, {other} {other_size}"
    distance = np.abs(turned.affine - other_turned.affine).max()
    return f"{one} lies elsewhere than {other}, or is turned: their headers differ by up to {distance:.3g} mm"

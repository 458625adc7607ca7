"""Sites whose images are volumes with masks, in folders or tables, and a spacing and patches that suit them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import TASK_UNSUPPORTED
from anchorage.api.errors.silo import IMAGES_UNLABELLED
from anchorage.api.piece import PIECES, expect
from anchorage.learning.data.cases import read_scan
from anchorage.learning.data.decoding import RefusedImageError
from anchorage.learning.data.grids import Grid, respace
from anchorage.learning.data.header_rows import may_have_header
from anchorage.learning.data.headers import read_headers
from anchorage.learning.data.listing import Listing
from anchorage.learning.data.mask_folders import FIRST_CHANNEL
from anchorage.learning.data.masks import MaskReader, whole_numbers
from anchorage.learning.data.med_mnist import is_med_mnist
from anchorage.learning.data.sources import Series
from anchorage.learning.reader_hooks import ReaderHooks
from fedctl.masked_folders import SAMPLED, class_folders, named_values, values_at
from fedctl.output import format_count, warn
from fedctl.site_folders import SiteFolder, is_volume, plain_section, site_of_volumes, table_sections

LONGEST_PATCH = 64
"""Voxels of a patch's side, at most: four patches of a step train on a processor."""
LONGEST_SIDE = 256
"""Voxels along an axis of a usual volume at the model's spacing, at most; finer volumes get a coarser spacing."""
_STEP_MM = 0.05
_SIDE_STEP = 8
_MOST_VALUES = 32
"""Different values of a site's masks but 0, up to which they are taken for classes."""
_OF_SERVER = ("anchors", "validation", "test")
_MOST_OPENED = 1 << 28
"""Voxels of a site's masks after which no more are opened: four of a large CT, within half a minute."""
_CLASSES = ("background", "foreground")
"""Of the reader that finds masks, before anybody knows the federation's."""


@dataclass(frozen=True, slots=True)
class MaskedVolumes:
    """A site with volumes of which some or all have masks.

    Parameters
    ----------
    site : SiteFolder
        What it has.
    values : tuple of int
        Values but 0 of the masks that were opened, ascending.
    grids : tuple of Grid
        Of these masks, and so of their volumes.
    """

    site: SiteFolder
    values: tuple[int, ...]
    grids: tuple[Grid, ...]


def masked_volumes(places: Mapping[str, Path], root: Path, columns: Mapping[str, str]) -> Mapping[str, MaskedVolumes]:
    """Return the sites that have volumes with masks; empty where the sites' images are others, or no mask shows anything.

    Parameters
    ----------
    places : mapping of str to Path
        Folder or table of each role whose masks are to be read.
    root : Path
        The data root.
    columns : mapping of str to str
        Column of the masks, by role, where somebody said it.

    Raises
    ------
    AnchorageError
        TASK_UNSUPPORTED: some sites have volumes with masks, others pictures with masks, or masks have too many values. Others: a folder or
        table cannot be read.
    """
    masked = {
        role: volumes
        for role, place in places.items()
        if (volumes := _at(role, place, root, columns.get(role))) is not None
    }
    if not any(volumes.values for volumes in masked.values()):
        return {}
    for role, place in places.items():
        if role not in masked and place.is_dir() and values_at(_plain(place, root), root) is not None:
            message = f"{next(iter(masked))} has volumes with masks, but {role} has pictures with masks"
            raise AnchorageError(TASK_UNSUPPORTED, f"{message}; make a federation of each kind: name sites of one kind")
    return masked


def volume_of(masked_volumes: Sequence[MaskedVolumes]) -> Mapping[str, Any]:
    """Return `spec.model.volume` that suits the volumes of some sites; axes lead to the right, the front and the head.

    The spacing is the median, in steps of 0.05 mm, but coarser where the usual volume would have more than `LONGEST_SIDE` voxels along an axis. A
    patch is as large as the usual volume at that spacing, at most `LONGEST_PATCH`, in multiples of 8.
    """
    grids = [grid.turn() for volumes in masked_volumes for grid in volumes.grids]
    spacing: list[float] = []
    for axis in range(3):
        usual = median(grid.spacing[axis] for grid in grids)
        extent = median(grid.spacing[axis] * grid.shape[axis] for grid in grids)
        steps = max(round(usual / _STEP_MM), ceil(round(extent / LONGEST_SIDE / _STEP_MM, 6)), 1)
        spacing.append(min(50.0, round(steps * _STEP_MM, 2)))
    x, y, z = spacing
    sizes = [respace(grid, (x, y, z)).shape for grid in grids]
    usual_size = [int(median(shape[axis] for shape in sizes)) for axis in range(3)]
    return {
        "spacing": [f"{each:g}" for each in spacing],
        "patch": [max(_SIDE_STEP, min(side, LONGEST_PATCH) // _SIDE_STEP * _SIDE_STEP) for side in usual_size],
        "patchesPerCase": 2,
        "foregroundShare": "0.7",
    }


def with_channels(sites: Mapping[str, SiteFolder]) -> dict[str, SiteFolder]:
    """Return sites of volumes with the channels that lie in files of their own, where all sites have the same; else warn of those left out."""
    endings = {site.further_channels for site in sites.values()}
    if len(endings) > 1:
        for site in sites.values():
            if site.further_channels:
                remedy = "name what all sites have by channels and channelFiles (docs/volumes.md)"
                warn(
                    f"{site.role}: {', '.join(site.further_channels)} are left out, for not every site has them; {remedy}"
                )
        return dict(sites)
    channels = (FIRST_CHANNEL, *next(iter(endings), ()))
    if len(channels) == 1:
        return dict(sites)
    return {
        role: replace(site, section=site.section.model_copy(update={"channel_files": channels}))
        for role, site in sites.items()
    }


def tell_of_volumes(
    sites: Sequence[SiteFolder], wanting: Collection[str], values: Mapping[str, Sequence[int]], classes: Sequence[str]
) -> None:
    """Warn of what is not learnt in a federation of volumes, and of masks' values of which nobody knows the class.

    Parameters
    ----------
    sites : sequence of SiteFolder
        All of them.
    wanting : collection of str
        Roles of those whose masks are to be read.
    values : mapping of str to sequence of int
        Values but 0 of masks, by role.
    classes : sequence of str
        The federation's, background first.

    Raises
    ------
    AnchorageError
        IMAGES_UNLABELLED: no volume of a site has a mask that should.
    """
    for site in sites:
        if site.role in wanting and not site.names:
            option = f"--{site.role}" if site.role in _OF_SERVER else ":labels"
            message = f"{site.role}: none of its {format_count(site.images, 'volume')} has a mask"
            remedy = f"put masks where docs/volumes.md says, or leave {option} out"
            raise AnchorageError(IMAGES_UNLABELLED, f"{message}; {remedy}")
        without = site.unlabelled if site.role in wanting else site.images
        if without and site.role not in _OF_SERVER:
            learns = "the method in the file learns of masks alone (FedAvgFixMatch: of the others, too)"
            warn(f"{site.role}: {format_count(without, 'volume')} without masks that are read; {learns}")
        mask_labels = values.get(site.role, ())
        if not named_values(mask_labels, classes) and (
            unnamed := [value for value in mask_labels if value >= len(classes)]
        ):
            shown = ", ".join(map(str, unnamed))
            remedy = "say which class each is by maskValues in the file, or name all classes with --classes"
            warn(f"{site.role}: masks have the values {shown}, which are none of the {len(classes)} classes; {remedy}")
        if site.flat:
            message = f"{site.flat} of {format_count(site.images, 'image')} are no volumes of three slices or more"
            warn(f"{site.role}: {message}; take them out: `fedctl data check` names them")


def _at(role: str, place: Path, root: Path, column: str | None) -> MaskedVolumes | None:
    """Return what a folder or table has; None: most of its images with masks are pictures, or none has a mask."""
    for section in _sections(place, root, column):
        pictures = _list_section(section, root, volumes=False)
        if section.manifest is None and not _has_volumes(pictures):
            continue
        listing = _list_section(section, root, volumes=True)
        if (masks := listing.masks) is None:
            continue
        rows = [row for row, mask in enumerate(masks.files) if mask is not None]
        of_volumes = sum(is_volume(listing.sources[row]) for row in rows)
        if 2 * of_volumes <= max(len(rows), _count_masks(pictures)):
            continue
        if 2 * len(rows) <= len(listing) and len(class_folders(listing)) > 1:
            continue
        values, grids = _read_masks([masks.files[row] for row in rows])
        if len(values) > _MOST_VALUES:
            message = f"{place} ({role}): its masks have more than {_MOST_VALUES} different values, which are no classes to begin with"
            raise AnchorageError(
                TASK_UNSUPPORTED, f"{message}; check that these are masks, saved without interpolation"
            )
        if grids:
            return MaskedVolumes(site_of_volumes(role, section, listing, root), values, grids)
    return None


def _sections(place: Path, root: Path, column: str | None) -> Iterator[SiloData]:
    """Yield the sections that may have masks: of tables, then of the folder itself."""
    if place.is_file() and is_med_mnist(place):
        return
    for section in table_sections(place, root):
        yield section if column is None else section.model_copy(update={"mask_column": column})
    if place.is_dir() and column is None:
        yield _plain(place, root)


def _plain(folder: Path, root: Path) -> SiloData:
    return SiloData.model_validate(plain_section(folder, root))


def _list_section(section: SiloData, root: Path, *, volumes: bool) -> Listing:
    reader = expect(PIECES["reader", section.format](), ReaderHooks)
    return reader.listing(section, root, MaskReader(_CLASSES, volumes=volumes))


def _count_masks(listing: Listing) -> int:
    return 0 if listing.masks is None else sum(mask is not None for mask in listing.masks.files)


def _has_volumes(listing: Listing) -> bool:
    """Return whether some of a few images may be volumes, or slices of one."""
    files = [source for source in listing.sources if isinstance(source, Path) and may_have_header(source)]
    sampled = [files[row] for row in _spread(len(files))]
    return any(
        header is not None and (header.series or is_volume(file))
        for file, header in zip(sampled, read_headers(sampled), strict=True)
    )


def _read_masks(masks: Sequence[Path | Series | None]) -> tuple[tuple[int, ...], tuple[Grid, ...]]:
    """Return the values but 0 of some masks, ascending, and their grids; those that cannot be read are named by `fedctl data check`."""
    present = np.zeros(1 << 16, np.bool_)
    grids: list[Grid] = []
    opened = 0
    for row in _spread(len(masks)):
        if (mask := masks[row]) is None or opened > _MOST_OPENED:
            continue
        try:
            scan = read_scan(mask)
            values = whole_numbers(scan.values[0])
        except RefusedImageError:
            continue
        for plane in values:  # a plane at a time: a volume takes much memory
            present[plane] = True
        grids.append(scan.grid)
        opened += values.size
    return tuple(int(value) for value in np.flatnonzero(present) if value), tuple(grids)


def _spread(count: int) -> Sequence[int]:
    """Return a few places among so many, evenly apart."""
    return [int(row) for row in np.unique(np.linspace(0, count - 1, SAMPLED).astype(int))] if count else []

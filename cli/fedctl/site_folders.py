"""What lies in the folders that `fedctl init` is given, found by the readers of `anchorage.learning.data`."""

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from anchorage.api.base import NAME_PATTERN
from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING
from anchorage.api.piece import PIECES, expect
from anchorage.learning.data.classes import SiteClasses
from anchorage.learning.data.decoders import image_suffixes
from anchorage.learning.data.decoding import Decoded, Input
from anchorage.learning.data.divisions import refuse_empty
from anchorage.learning.data.folders import file_of, without_suffix
from anchorage.learning.data.grids import LEAST_SLICES
from anchorage.learning.data.headers import read_headers
from anchorage.learning.data.intensity import intensity_of
from anchorage.learning.data.label_kinds import refuse_masks
from anchorage.learning.data.labels import ReadLabels
from anchorage.learning.data.listed_images import decode
from anchorage.learning.data.listing import Listing
from anchorage.learning.data.mask_folders import FURTHER_CHANNEL
from anchorage.learning.data.masks import MaskReader
from anchorage.learning.data.med_mnist import SUFFIX, is_med_mnist
from anchorage.learning.data.sources import Series, Source
from anchorage.learning.data.table_columns import split_column
from anchorage.learning.data.tables import IMAGE_COLUMNS, read_table
from anchorage.learning.model_hooks import TaskHooks
from anchorage.learning.reader_hooks import ReaderHooks
from fedctl.output import format_count, warn

SAMPLED = 40
"""Images of a folder that are opened to see their size and colours."""
GREY = frozenset({"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "MONOCHROME1", "MONOCHROME2", "NIfTI"})
"""Names of pixel formats without colours, Pillow's and those of scanners."""
LONGEST_NAME = 63
_IMAGE_WORDS = frozenset(IMAGE_COLUMNS) - {"id"}
"""Columns of images by their name alone; an ``id`` may be a patient's."""
_REMEDY = (
    "correct the names, or name the folder that has these images; a table of something else belongs in another folder"
)


@dataclass(frozen=True, slots=True)
class SiteFolder:
    """What a role of the federation (``anchors``, ``validation``, ``test``, or a silo by its name) has."""

    role: str
    """Its name."""
    section: SiloData
    """Where the images are: format, claimName, path and manifest."""
    names: Mapping[str, int]
    """Images by the class that the folder or its table names, in the site's own words; sorted by name."""
    images: int
    """All images."""
    sides: tuple[int, ...]
    """Shorter sides of some of the images in pixels."""
    grey: bool
    """Whether none of these has colours."""
    columns: tuple[str, ...] = ()
    """Of its table, without that of the images; empty for folders."""
    facts: frozenset[str] = frozenset()
    """What the files of some of the images say of themselves, such as ``modality CT``."""
    flat: int = 0
    """Images that are no volumes, in a federation of volumes."""
    further_channels: tuple[str, ...] = ()
    """How the names of files end that have further channels of its volumes, such as ``_0001``."""

    @property
    def unlabelled(self) -> int:
        """How many images have no label."""
        return max(0, self.images - sum(self.names.values()))


class LocalNames(SiteClasses):
    """Takes down what a site calls its classes, instead of matching it with a federation's."""

    def __init__(self) -> None:
        super().__init__((), {}, "Unlabelled")
        self.counts: Counter[str] = Counter()

    def read(self, names: Sequence[str], place: Path, kind: str) -> ReadLabels:
        """Count the names of folders or labels; no image gets a label."""
        self.counts.update(filter(None, names))
        none = np.full(len(names), -1, dtype=np.int64)
        return ReadLabels(none, none, ())

    def refuse(self, place: Path, kind: str, counts: Mapping[str, int]) -> None:
        """Count the images of one-hot columns."""
        self.counts.update(counts)


def data_root(places: Mapping[str, Path]) -> Path:
    """Return the deepest folder below which every role's folder has a first folder that can be a claim's name.

    Parameters
    ----------
    places : mapping of str to Path
        Folder, or table, of each role, absolute.

    Raises
    ------
    AnchorageError
        DATA_MISSING: there is nothing, or no folder above can be a claim.
    """
    for role, place in places.items():
        if not place.exists():
            raise AnchorageError(DATA_MISSING, f"{place} ({role}) is no folder; check the path")
    folders = [_folder(place) for place in places.values()]
    root = Path(os.path.commonpath([folder.parent for folder in folders]))
    for above in (root, *root.parents):
        if all(_is_name(folder.relative_to(above).parts[0]) for folder in folders):
            return above
    message = f"no folder above {folders[0]} has a name of lower-case letters, digits and dashes, which a claim needs"
    raise AnchorageError(DATA_MISSING, f"{message}; put the images below one, such as data/")


def look(
    role: str,
    place: Path,
    root: Path,
    label_column: str | None = None,
    task: TaskHooks | None = None,
    *,
    volumes: bool = False,
) -> SiteFolder:
    """Find out what a folder, or a table and the images beside it, holds.

    Parameters
    ----------
    role : str
        Name of the silo, or of the server's section.
    place, root : Path
        Folder or table, and the data root.
    label_column : str or None
        Of the table's labels; None: the usual one.
    task : TaskHooks or None
        What reads the labels, whose strata are counted then; None: their names are.
    volumes : bool
        Whether images are volumes, of whose files the headers alone are read.

    Raises
    ------
    AnchorageError
        The folder or table cannot be read, there is no image, several tables name images, one names none that is there, none has the
        column, or folders are those of images and masks.
    """
    folder = _folder(place)
    plain = plain_section(folder, root)
    files = [place] if place != folder else sorted(folder.glob(f"*{SUFFIX}"))
    if packed := [file for file in files if is_med_mnist(file)]:
        return _packed_site(role, packed, folder, root, label_column, task)
    sections = table_sections(place, root)
    listings = [(section, *_list_section(section, root, task, volumes)) for section in sections]
    named = [each for each in listings if any(source is not None for source in each[1].sources)]
    if len(named) > 1:
        shown = ", ".join(str(section.manifest) for section, _, _ in named)
        message = f"{folder} ({role}) has several tables of images: {shown}"
        raise AnchorageError(DATA_MISSING, f"{message}; name one, such as {folder / str(named[0][0].manifest)}")
    by_folder = SiloData.model_validate(plain)
    section, listing, names = named[0] if named else (by_folder, *_list_section(by_folder, root, task, volumes))
    if not named and len(listing):
        _refuse_unmatched(sections, root, role, names, asked=place != folder)
    if label_column is None and named and place == folder and not names:
        classes, counts = _list_section(by_folder, root, task, volumes)
        if len(counts) > 1:  # folders of classes, beside a table of something else; one alone, such as img, is none
            section, listing, names = by_folder, classes, counts
    masked = volumes and bool(names)  # an export has no masks
    if section.format == "ImageFolder" and not masked and _is_export(listing):
        section = SiloData.model_validate({**plain, "format": "DicomFolder"})
        listing, _ = _list_section(section, root, task, volumes)
    if section.format == "ImageFolder":
        refuse_masks(folder, names)
    if label_column is not None:
        if section.format != "CsvManifest":
            raise AnchorageError(DATA_MISSING, _no_column(folder, role, label_column))
        section = section.model_copy(update={"label_column": label_column})
        listing, names = _list_section(section, root, task)
    if not len(listing):
        refuse_empty(listing, section, root)
    if volumes:
        return site_of_volumes(role, section, listing, root)
    sides, grey, facts = _sample(listing)
    columns = _columns(section, root) if section.manifest is not None else ()
    return SiteFolder(role, section, dict(sorted(names.items())), len(listing), sides, grey, columns, facts)


def _packed_site(
    role: str, packed: Sequence[Path], folder: Path, root: Path, label_column: str | None, task: TaskHooks | None
) -> SiteFolder:
    """Return what a site has in a file of a published set. Errors as of `look`."""
    if len(packed) > 1:
        message = f"{folder} ({role}) has several data sets: {', '.join(file.name for file in packed)}"
        raise AnchorageError(DATA_MISSING, f"{message}; name one, such as {packed[0]}")
    if label_column is not None:
        raise AnchorageError(DATA_MISSING, _no_column(packed[0], role, label_column))
    fields = {**plain_section(folder, root), "format": "MedMnist", "manifest": packed[0].name}
    section = SiloData.model_validate(fields)
    listing, names = _list_section(section, root, task)
    sides, grey, facts = _sample(listing)
    return SiteFolder(role, section, dict(sorted(names.items())), len(listing), sides, grey, facts=facts)


def site_of_volumes(role: str, section: SiloData, listing: Listing, root: Path) -> SiteFolder:
    """Return what a site has of which each image is a volume, by the headers of some files."""
    masked = int(np.count_nonzero(listing.strata >= 0))
    rows = np.unique(np.linspace(0, len(listing) - 1, SAMPLED).astype(np.int64))
    files = [file for row in rows if isinstance(file := _first_file(listing.sources[row]), Path)]
    facts = frozenset(_modality(header.kind) for header in read_headers(files) if header is not None)
    flat = sum(not is_volume(source) for source in listing.sources)
    columns = _columns(section, root) if section.manifest is not None else ()
    names = {listing.stratum_names[0]: masked} if masked else {}
    further = tuple(sorted({without_suffix(file)[-5:] for file in listing.left_out.get(FURTHER_CHANNEL, ())}))
    return SiteFolder(role, section, names, len(listing), (), True, columns, facts, flat, further)


def is_volume(source: Source) -> bool:
    """Return whether an image of a listing of volumes is one, by its header."""
    if not isinstance(source, Path):
        return isinstance(source, Series)
    header = next(iter(read_headers([source])))
    return header is not None and header.frames >= LEAST_SLICES


def table_sections(place: Path, root: Path) -> Sequence[SiloData]:
    """Return sections of the tables of a folder, or of the one that was named."""
    folder = _folder(place)
    tables = [place.name] if place != folder else sorted(p.name for p in folder.glob("*.csv") if p.is_file())
    plain = plain_section(folder, root)
    return [_table_section({**plain, "format": "CsvManifest", "manifest": table}, root) for table in tables]


def plain_section(folder: Path, root: Path) -> dict[str, str]:
    """Return the fields of a section of a folder of images below the data root."""
    claim, *below = folder.relative_to(root).parts
    return {"format": "ImageFolder", "claim_name": claim, "path": "/".join(below) or "."}


def _refuse_unmatched(
    tables: Sequence[SiloData], root: Path, role: str, classes: Collection[str], *, asked: bool
) -> None:
    """Refuse a table of images of which none is there, unless the folder itself has classes; `asked` says that the table was named.

    Raises
    ------
    AnchorageError
        DATA_MISSING: there is such a table.
    """
    for section in tables:
        file = file_of(section, root, section.manifest or "")
        table = read_table(file)
        column = table.image_column(None)
        cells = [cell for cell in table.columns[column] if cell]
        if not asked and not (cells and _names_images(column, cells)):
            continue
        first = f" (first: {cells[0][:60]})" if cells else ""
        message = f'{file} ({role}): none of its {format_count(len(cells), "name")} in the column "{column}" is an image below {file.parent}{first}'
        if asked or len(classes) < 2:
            raise AnchorageError(DATA_MISSING, f"{message}; {_REMEDY}")
        warn(f"{message}; the folders' names are taken as labels")


def _names_images(column: str, cells: Sequence[str]) -> bool:
    """Say whether a table's column names images, and not patients or anything else that a data set comes with."""
    suffixed = sum(Path(cell).suffix.lower() in image_suffixes() for cell in cells)
    return 2 * suffixed > len(cells) or column.lower() in _IMAGE_WORDS


def image_size(sites: Sequence[SiteFolder], most: int) -> int:
    """Return a side for the model's images: the usual shorter side, at most `most`, a multiple of 8."""
    sides = [side for site in sites for side in site.sides] or [most]
    return max(8, min(most, int(median(sides))) // 8 * 8)


def _no_column(place: Path, role: str, column: str) -> str:
    return f"{place} ({role}) has no table of images, so no column {column}; leave --label-column {role}:{column} out"


def _list_section(
    section: SiloData, root: Path, task: TaskHooks | None, volumes: bool = False
) -> tuple[Listing, Counter[str]]:
    names = LocalNames()
    reader = names if task is None else task.label_reader({}, "Unlabelled").reading(section)
    if volumes and isinstance(reader, MaskReader):
        reader = reader.of_volumes()
    listing = expect(PIECES["reader", section.format](), ReaderHooks).listing(section, root, reader)
    if task is None:
        return listing, names.counts
    return listing, Counter(listing.stratum_names[stratum] for stratum in listing.strata if stratum >= 0)


def relist(site: SiteFolder, root: Path, task: TaskHooks, fields: Mapping[str, Any]) -> SiteFolder:
    """Return a site whose labels another task reads, with these further fields of its section."""
    section = site.section.model_copy(update=fields)
    names = _list_section(section, root, task)[1]
    return replace(site, section=section, names=dict(sorted(names.items())))


def _table_section(fields: Mapping[str, str], root: Path) -> SiloData:
    """Return a section of a table; a column of it that says which images are for a test counts."""
    section = SiloData.model_validate(fields)
    table = read_table(file_of(section, root, section.manifest or ""))
    divided = split_column(table, {table.image_column(None)})
    return section.model_copy(update={"split_column": divided}) if divided else section


def _columns(section: SiloData, root: Path) -> tuple[str, ...]:
    table = read_table(file_of(section, root, section.manifest or ""))
    return tuple(name for name in table.columns if name != table.image_column(section.image_column))


def _is_export(listing: Listing) -> bool:
    """Return whether images are what a PACS exports: DICOM alone, beside a directory of it or in folders below folders, which are no classes."""
    nested = any(name.count("/") > 1 for name in listing.ids)
    sources = [file for source in listing.sources if isinstance(file := _first_file(source), Path)]
    if not sources or not (nested or "DICOMDIR" in listing.not_images):
        return False
    return all(header is not None and header.kind.startswith("DICOM") for header in read_headers(sources))


def _sample(listing: Listing) -> tuple[tuple[int, ...], bool, frozenset[str]]:
    """Return shorter sides of some images, whether none of them has colours, and what their files say of themselves."""
    wanted = Input(8, 3, intensity_of({"percentiles": {"low": "0", "high": "100"}}))
    rows = np.unique(np.linspace(0, len(listing) - 1, SAMPLED).astype(np.int64))
    opened = [outcome for outcome in decode(listing.select(rows), wanted) if isinstance(outcome, Decoded)]
    facts = frozenset(fact for image in opened for fact in image.facts)
    return tuple(min(image.size) for image in opened), all(image.mode in GREY for image in opened), facts


def _first_file(source: Source) -> Source:
    """Return the first file of a series, other sources as they are."""
    return source.files[0] if isinstance(source, Series) and source.files else source


def _modality(kind: str) -> str:
    """Return what an image's facts say of a kind of file, such as ``DICOM CT Image Storage``."""
    if kind == "NIfTI":
        return "NIfTI volume"
    return next((f"modality {name}" for name in ("CT", "MR") if name in kind.split()), "modality other")


def _folder(place: Path) -> Path:
    return place.parent if place.is_file() else place


def _is_name(text: str) -> bool:
    return len(text) <= LONGEST_NAME and re.fullmatch(NAME_PATTERN, text) is not None

"""Tables of images with a label column or one-hot columns; the ISIC 2018 ground truth as it is published is one."""

import filecmp
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from anchorage.api.data import HEADER_GROUPS, DataSection
from anchorage.learning.data.decoders import image_suffixes
from anchorage.learning.data.folders import Files, file_of, find_files
from anchorage.learning.data.header_rows import with_headers
from anchorage.learning.data.headers import read_headers
from anchorage.learning.data.labels import LABEL_COLUMNS, LabelReader, Labels, as_integers, is_known
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.mask_folders import is_mask_path
from anchorage.learning.data.masks import MaskReader, Masks, wants_volumes
from anchorage.learning.data.sources import Channels, Series, Source, files_of
from anchorage.learning.data.table_columns import divided_paths, group_column, owner_in_path, owner_remarks, split_of
from anchorage.learning.data.tables import read_table

_SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "without the folder": lambda name: PurePosixPath(name).name,
    "with another suffix": lambda name: PurePosixPath(name).stem,
    "in another case": lambda name: PurePosixPath(name).stem.casefold(),
    "with leading zeros": lambda name: PurePosixPath(name).stem.casefold().lstrip("0"),
    "with other blanks, dashes or accents": lambda name: _letters(PurePosixPath(name).stem),
    "by their numbers alone": lambda name: "".join(re.findall("[0-9]+", PurePosixPath(name).stem)).lstrip("0") or name,
}
"""Ways in which a table's names differ from those of files, each looser than the one before."""

_IDENTIFIERS: Mapping[str, str] = {
    "SOPInstanceUID": "instance",
    "SeriesInstanceUID": "series",
    "StudyInstanceUID": "study",
    "AccessionNumber": "accession",
}
"""Attributes of `anchorage.learning.data.headers.Header` by the name of the DICOM element."""


def list_manifest(section: DataSection, root: Path, reader: LabelReader) -> Listing:
    """List the images of a table; they lie anywhere below the section's folder, named with or without folder and suffix.

    Raises
    ------
    AnchorageError
        DATA_MISSING, OUTSIDE_FOLDER, MANIFEST_WRONG, SPLIT_IGNORED, GROUP_UNKNOWN, PACKAGE_MISSING, or as of `LabelReader.read_table`.
    """
    table = read_table(file_of(section, root, section.manifest or ""))
    channels = [name for column in section.channel_files if (name := table.column(column, ())) is not None]
    names = table.columns[image := channels[0] if channels else table.image_column(section.image_column)]
    label = table.column(section.label_column, LABEL_COLUMNS)
    used_columns = {image, label or image}
    asked = None if section.group_by in HEADER_GROUPS and section.group_by not in table.columns else section.group_by
    group = group_column(table, asked, used_columns) if asked == section.group_by else None
    column = section.mask_column if isinstance(reader, MaskReader) else section.label_column
    labels = reader.read_table(table, column, {image, group or image})
    split = split_of(table, section.split_column, {*used_columns, group or image})
    files = find_files(section, root)
    masks: Masks | None = None
    bad_masks: dict[int, tuple[str, str]] = {}
    if isinstance(reader, MaskReader):
        masks, bad_masks = _masks(files, reader, reader.names(table, column), section)
    volumes = wants_volumes(reader)
    rows: Sequence[int] = range(len(names))
    if channels:
        sources, bad = _find_channels(files, [table.columns[column] for column in channels], section.match)
    elif section.match == "Path":
        sources, bad = _find(files, names)
        if volumes:
            rows, sources, bad = _with_folders(files, names, sources, bad)
    else:
        rows, sources, bad = _by_identifier(files, names, section.match)
    if not isinstance(rows, range):
        names, labels = [names[row] for row in rows], labels.select(rows)
        split = None if split is None else split[list(rows)]
        masks = None if masks is None else masks.select(rows)
        bad_masks = {place: bad_masks[row] for place, row in enumerate(rows) if row in bad_masks}
    bad |= {row: BadImage(names[row], *reason) for row, reason in bad_masks.items() if row not in bad}
    for row, (reason, detail) in labels.wrong.items():
        bad.setdefault(row, BadImage(names[row], reason, detail))
    bad |= dict(_find_repeated(sources, names, labels.values))
    begin = len(str(files.folder)) + 1
    paths = [str(next(iter(files_of(source)), ""))[begin:] for source in sources]
    remarks = [*owner_remarks(table, group, section.group_by, used_columns)]
    if split is None and section.split_column is None:
        remarks += divided_paths(paths)
    if group is not None:
        owners: Sequence[str | None] = [table.columns[group][row] for row in rows]
    elif section.group_by is None:
        owners = [owner_in_path(path) for path in paths]
    else:
        owners = [None] * len(names)
    listing = Listing.of(
        ids=tuple(names),
        groups=tuple(owner or name for owner, name in zip(owners, names, strict=True)),
        sources=tuple(sources),
        labels=labels,
        bad=bad,
        not_images=files.counts(),
        not_listed=len(files.images) - len({file for source in sources for file in files_of(source)}),
        left_out=files.left_out,
        split=split,
        remarks=remarks,
        masks=masks,
    )
    return with_headers(listing, section, grouped=group is not None, named=True, volumes=volumes)


def _find_channels(
    folder_files: Files, columns: Sequence[list[str]], match: str
) -> tuple[list[Source], dict[int, BadImage]]:
    """Find each volume's channels, which a column each names: a file, a folder with one series, or by `match` the UID of a series."""
    series = _series(folder_files) if match == "SeriesInstanceUID" else {}
    volumes: list[list[Path | Series]] = [[] for _ in columns[0]]
    bad: dict[int, BadImage] = {}
    for names in columns:
        files, wrong = _find(folder_files, names)
        for row, name in enumerate(names):
            source = files[row]
            if slices := series.get(name.strip()) or _below(folder_files.images, name):
                volumes[row].append(Series(tuple(folder_files.folder / file for file in slices)))
            elif isinstance(source, Path):
                volumes[row].append(source)
            elif name:
                bad.setdefault(row, replace(wrong[row], id=columns[0][row]))
            else:
                bad.setdefault(
                    row, BadImage(columns[0][row], "ChannelMissing", "an empty cell in a column of a channel")
                )
    return [Channels(tuple(parts)) if row not in bad else None for row, parts in enumerate(volumes)], bad


def _with_folders(
    folder_files: Files, names: Sequence[str], sources: Sequence[Source], bad: Mapping[int, BadImage]
) -> tuple[list[int], list[Source], dict[int, BadImage]]:
    """Return what `_by_identifier` does of names of files, of which those of folders mean all files below."""
    rows: list[int] = []
    every: list[Source] = []
    bad_rows: dict[int, BadImage] = {}
    for row, name in enumerate(names):
        below = _below(folder_files.images, name)
        if not below and row in bad:
            bad_rows[len(rows)] = bad[row]
        every += [folder_files.folder / file for file in below] or [sources[row]]
        rows += [row] * max(1, len(below))
    return rows, every, bad_rows


def _below(files: Sequence[str], folder: str) -> list[str]:
    """Return the files below a folder; none, where it is none."""
    beginning = f"{PurePosixPath(_slashes(folder))}/"
    return [file for file in files if file.startswith(beginning)] if folder else []


def _by_identifier(
    folder_files: Files, names: Sequence[str], match: str
) -> tuple[list[int], list[Source], dict[int, BadImage]]:
    """Find the files whose headers have the identifiers of a table's rows; return the row of each file, the files, and rows without one as bad.

    A study, a series or an accession number may be of several files: each is an image with the row's label.
    """
    files: dict[str, list[Path]] = {}
    paths = [folder_files.folder / name for name in folder_files.images]
    for path, header in zip(paths, read_headers(paths), strict=True):
        if header is not None and header.image and (identifier := getattr(header, _IDENTIFIERS[match])):
            files.setdefault(identifier, []).append(path)
    rows: list[int] = []
    sources: list[Source] = []
    bad: dict[int, BadImage] = {}
    for row, name in enumerate(names):
        matches = files.get(name.strip(), [])
        if match == "SOPInstanceUID" and len(matches) > 1:
            matches = matches[:1] if _equal(matches) else []
        if not matches:
            bad[len(rows)] = BadImage(
                name, "Missing", f"no file, or several different ones, with this {match} below {folder_files.folder}"
            )
        sources += matches or [None]
        rows += [row] * max(1, len(matches))
    return rows, sources, bad


def _masks(
    files: Files, reader: MaskReader, names: Sequence[str], section: DataSection
) -> tuple[Masks, dict[int, tuple[str, str]]]:
    """Find the file of each mask that a table names, in folders of masks first; what lies there is no image of `files` any more.

    Returns
    -------
    masks : Masks
        Files of the masks.
    bad : dict of int to tuple of str
        Reason and detail of masks that have no file of their own.
    """
    listed = list(files.images)
    apart = [file for file in listed if is_mask_path(file)]
    images_by_name, every = _ByName(apart), _ByName(listed)
    series = _series(files) if reader.volumes and section.match == "SeriesInstanceUID" else {}
    files.images[:] = [file for file in files.images if not is_mask_path(file)]
    paths: list[Path | Series | None] = []
    bad: dict[int, tuple[str, str]] = {}
    for row, name in enumerate(names):
        path = PurePosixPath(_slashes(name))
        if reader.volumes and (slices := series.get(name.strip()) or _below(listed, name)):
            paths.append(Series(tuple(files.folder / file for file in slices)))
            continue
        matches = (images_by_name.matches(path) or every.matches(path)) if name else []
        paths.append(files.folder / matches[0] if len(matches) == 1 else None)
        if len(matches) > 1:
            bad[row] = ("MaskAmbiguous", f"several files may be its mask: {', '.join(matches[:3])}")
        elif name and not matches:
            bad[row] = ("MaskMissing", f"no such mask as {name[:80]} below {files.folder}")
    named = {file for path in paths for file in files_of(path)}
    files.images[:] = [file for file in files.images if files.folder / file not in named]
    return reader.masks(paths, section), bad


def _series(files: Files) -> Mapping[str, Sequence[str]]:
    """Return the files of each series."""
    names_by_series: dict[str, list[str]] = {}
    for name, header in zip(files.images, read_headers([files.folder / name for name in files.images]), strict=True):
        if header is not None and header.series:
            names_by_series.setdefault(header.series, []).append(name)
    return names_by_series


def _find(folder_files: Files, names: list[str]) -> tuple[list[Source], dict[int, BadImage]]:
    """Find each image's file: by its path, else by its name anywhere below the folder."""
    files, others = _ByName(folder_files.images), _ByName([*folder_files.others, *folder_files.outside])
    sources: list[Source] = []
    bad: dict[int, BadImage] = {}
    for row, name in enumerate(names):
        path = PurePosixPath(_slashes(name))
        matches = files.matches(path)
        if len(matches) > 1 and _equal([folder_files.folder / match for match in matches]):
            matches = matches[:1]
        sources.append(folder_files.folder / matches[0] if len(matches) == 1 else None)
        if not matches:
            bad[row] = _missing(folder_files, name, path, others)
        elif len(matches) > 1:
            bad[row] = BadImage(name, "Ambiguous", f"several files: {', '.join(matches[:3])}")
    return sources, bad | _nearly(
        {row: image for row, image in bad.items() if image.reason == "Missing"}, folder_files.images
    )


def _equal(files: Sequence[Path]) -> bool:
    """Return whether files have the same content."""
    try:
        return all(filecmp.cmp(files[0], file, shallow=False) for file in files[1:])
    except OSError:
        return False


def _find_repeated(sources: Sequence[Source], names: Sequence[str], labels: Labels) -> Iterator[tuple[int, BadImage]]:
    """Yield the rows that name the file of another row, by whatever name: one of them counts, a labelled one first, or none if labels differ."""
    rows_of: dict[Source, list[int]] = {}
    for row, source in enumerate(sources):
        if isinstance(source, Path | Channels):
            rows_of.setdefault(source, []).append(row)
    known = is_known(labels)
    for rows in (rows for rows in rows_of.values() if len(rows) > 1):
        labelled = [row for row in rows if known[row]]
        integers = as_integers(labels[labelled])
        if (integers != integers[:1]).any():
            detail = f"the table lists it {len(rows)} times with different labels"
            yield from ((row, BadImage(names[row], "LabelAmbiguous", detail)) for row in rows)
            continue
        first = (labelled or rows)[0]
        others = (row for row in rows if row != first)
        yield from ((row, BadImage(names[row], "DuplicateId", "the table lists it twice")) for row in others)


def _nearly(missing: Mapping[int, BadImage], images: Sequence[str]) -> dict[int, BadImage]:
    """Return images that have no file with what it may be: how many of them would have one if names were spelt otherwise."""
    images_by_row = dict(missing)
    for way, spelt in _SPELLINGS.items():
        if all(image is not missing[row] for row, image in images_by_row.items()):  # nothing is missing, or all is told
            break
        files = {spelt(form) for image in images for form in (image, str(PurePosixPath(image).with_suffix("")))}
        rows = [
            row for row, image in images_by_row.items() if image is missing[row] and spelt(_slashes(image.id)) in files
        ]
        for row in rows:
            hint = f"{len(rows)} of {len(missing)} missing images would match {way}"
            images_by_row[row] = replace(missing[row], detail=f"{missing[row].detail}; {hint}")
    return images_by_row


def _slashes(name: str) -> str:
    return name.replace("\\", "/")


def _letters(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in plain if letter.isalnum()).lstrip("0")


class _ByName:
    """Files by their path, and by their name with and without suffix."""

    def __init__(self, files: Sequence[str]) -> None:
        self._paths = set(files)
        self._names: dict[str, list[str]] = {}
        for file in files:
            path = PurePosixPath(file)
            for name in {path.name, path.stem, path.name.removesuffix(".nii.gz")}:
                self._names.setdefault(name, []).append(file)

    def matches(self, path: PurePosixPath) -> list[str]:
        """Return the file of this path, else those of its name: with a folder, those of its path and another suffix."""
        if str(path) in self._paths:
            return [str(path)]
        candidates = self._names.get(path.name, [])
        return [file for file in candidates if file.startswith(f"{path}.")] if len(path.parts) > 1 else candidates


def _missing(folder_files: Files, name: str, path: PurePosixPath, others: _ByName) -> BadImage:
    """Say why an image has no file that is read: a link leads out, it is of another kind, or it is not there."""
    for link in (*others.matches(path), *map(str, path.parents)):
        if link in folder_files.outside:
            return folder_files.bad(name, link)
        if link in folder_files.others and link == str(path):
            return BadImage(name, "Unsupported", f"{link} is no image that is read ({folder_files.others[link]})")
    if folder_files.unreadable:
        return BadImage(
            name, "Unreadable", f"not found where it may be looked for; {folder_files.unreadable[0]} may not be read"
        )
    return BadImage(
        name, "Missing", f"no such image ({', '.join(sorted(image_suffixes()))}) below {folder_files.folder}"
    )

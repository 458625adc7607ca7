"""Tables of images with a label column or one-hot columns; the ISIC 2018 ground truth as it is published is one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from anchorage.api.data import DataSection
from anchorage.learning.data.classes import SiteClasses
from anchorage.learning.data.decoders import image_suffixes
from anchorage.learning.data.folders import DICOM, NIFTI, Files, file_of, find_files
from anchorage.learning.data.label_kinds import SEVERAL
from anchorage.learning.data.listing import BadImage, Listing, Source
from anchorage.learning.data.tables import Table, read_table

LABEL_COLUMNS = ("label", "class", "target", "diagnosis", "dx")
GROUP_COLUMNS = ("patient_id", "lesion_id")
_NUMBERS = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}


@dataclass(slots=True)
class _Labels:
    ids: NDArray[np.int64]
    wrong: dict[int, tuple[str, str]] = field(default_factory=dict)


def list_manifest(section: DataSection, root: Path, classes: SiteClasses) -> Listing:
    """List the images of a table; they lie anywhere below the section's folder, named with or without folder and suffix.

    Raises
    ------
    AnchorageError
        DATA_MISSING, OUTSIDE_FOLDER, MANIFEST_WRONG, or CLASSES_DIFFER: a label, or a column of zeros and ones, is no class.
    """
    table = read_table(file_of(section, root, section.manifest or ""))
    names = table.columns[image := table.image_column(section.image_column)]
    group = table.column(section.group_by, GROUP_COLUMNS)
    labels = _labels(table, section, classes, taken={image, group or image})
    files = find_files(section, root)
    sources, bad = _find(files, names)
    for row, (reason, detail) in labels.wrong.items():
        bad.setdefault(row, BadImage(names[row], reason, detail))
    groups = [cell or name for cell, name in zip(table.columns[group], names, strict=True)] if group else names
    return Listing(
        ids=tuple(names),
        groups=tuple(groups),
        sources=tuple(sources),
        labels=labels.ids,
        classes=classes.names,
        bad=bad,
        not_images=files.counts(),
        not_listed=len(files.images) - len({source for source in sources if source is not None}),
    )


def _labels(table: Table, section: DataSection, classes: SiteClasses, taken: set[str]) -> _Labels:
    """Find the labels: in the column asked for, in the 0/1 columns named as classes, or in a usual column."""
    flags = [name for name, cells in table.columns.items() if name not in taken and _holds_flags(cells)]
    named = [name for name in flags if classes.position(name) >= 0]
    if section.label_column is None and len(named) > 1:
        return _one_hot(table, classes, named, [name for name in flags if name not in named])
    if column := table.column(section.label_column, LABEL_COLUMNS):
        return _Labels(*classes.read(table.columns[column], table.file, "label"))
    count = len(next(iter(table.columns.values())))
    if len(flags) > 1:
        others = [name for name in flags if name not in named]
        classes.refuse(table.file, "column", {name: len(_ones(table, name)) for name in others})
    return _Labels(np.full(count, -1, dtype=np.int64))


def _holds_flags(cells: Sequence[str]) -> bool:
    return any(cells) and _NUMBERS.keys() >= set(cells) - {""}


def _ones(table: Table, column: str) -> set[int]:
    return {row for row, cell in enumerate(table.columns[column]) if _NUMBERS.get(cell) == 1}


def _one_hot(table: Table, classes: SiteClasses, columns: Sequence[str], others: Sequence[str]) -> _Labels:
    """Read the columns that are classes. Of the `others`, which hold zeros and ones as well, one is a class by another name where it says yes
    only of images of no class; what is told of images of any class, such as a sex, is none.
    """
    rows = zip(*(table.columns[name] for name in columns), strict=True)
    labels = _Labels(np.full(len(table.columns[columns[0]]), -1, dtype=np.int64))
    for row, cells in enumerate(rows):
        values = [_NUMBERS.get(cell) for cell in cells]
        if None not in values and values.count(1) == 1:
            labels.ids[row] = classes.position(columns[values.index(1)])
        elif any(cells):
            why = SEVERAL if values.count(1) > 1 else "needed is one 1"
            labels.wrong[row] = ("LabelAmbiguous", f"the class columns hold {','.join(cells)[:60]}: {why}")
    of_a_class = set().union(*(_ones(table, name) for name in columns))
    missed = {name: ones for name in others if (ones := _ones(table, name)) and not ones & of_a_class}
    classes.refuse(table.file, "column", {name: len(ones) for name, ones in missed.items()})
    return labels


def _find(found: Files, names: list[str]) -> tuple[list[Source], dict[int, BadImage]]:
    """Find each image's file: by its path, else by its name anywhere below the folder."""
    files, others = _ByName(found.images), _ByName([*found.others, *found.outside])
    sources: list[Source] = []
    bad: dict[int, BadImage] = {}
    seen: set[str] = set()
    for row, name in enumerate(names):
        path = PurePosixPath(name.replace("\\", "/"))
        matches = files.matches(path)
        sources.append(found.folder / matches[0] if len(matches) == 1 else None)
        if name in seen:
            bad[row] = BadImage(name, "DuplicateId", "the table lists it twice")
        elif not matches:
            bad[row] = _missing(found, name, path, others)
        elif len(matches) > 1:
            bad[row] = BadImage(name, "Ambiguous", f"several files: {', '.join(matches[:3])}")
        seen.add(name)
    return sources, bad


class _ByName:
    """Files by their path, and by their name with and without suffix."""

    def __init__(self, files: Sequence[str]) -> None:
        self._paths = set(files)
        self._names: dict[str, list[str]] = {}
        for file in files:
            path = PurePosixPath(file)
            for name in {path.name, path.stem}:
                self._names.setdefault(name, []).append(file)

    def matches(self, path: PurePosixPath) -> list[str]:
        """Return the file of this path, else those of its name: with a folder, those of its path and another suffix."""
        if str(path) in self._paths:
            return [str(path)]
        found = self._names.get(path.name, [])
        return [file for file in found if file.startswith(f"{path}.")] if len(path.parts) > 1 else found


def _missing(found: Files, name: str, path: PurePosixPath, others: _ByName) -> BadImage:
    """Say why an image has no file that is read: a link leads out, it is of another kind, or it is not there."""
    for link in (*others.matches(path), *map(str, path.parents)):
        if link in found.outside:
            return found.bad(name, link)
        if found.others.get(link) in (DICOM, NIFTI) or link == str(path):
            return BadImage(name, "Unsupported", f"{link} is no image that is read ({found.others[link]})")
    return BadImage(name, "Missing", f"no such image ({', '.join(sorted(image_suffixes()))}) below {found.folder}")

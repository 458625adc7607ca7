"""Tables of images with a label column or one-hot columns; the ISIC 2018 ground truth as it is published is one."""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import CLASSES_DIFFER
from anchorage.learning.data.folders import SUFFIXES, folder_of, image_files
from anchorage.learning.data.listing import BadImage, Listing, Source
from anchorage.learning.data.tables import Table, read_table

LABEL_COLUMNS = ("label", "class", "target", "diagnosis", "dx")
GROUP_COLUMNS = ("patient_id", "lesion_id")
_NUMBERS = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}


@dataclass(slots=True)
class _Labels:
    ids: NDArray[np.int64]
    classes: tuple[str, ...]
    wrong: dict[int, tuple[str, str]] = field(default_factory=dict)


def list_manifest(section: DataSection, root: Path, num_classes: int) -> Listing:
    """List the images of a table; they lie anywhere below the section's folder, named with or without folder and suffix.

    Raises
    ------
    AnchorageError
        DATA_MISSING, MANIFEST_WRONG, or CLASSES_DIFFER: neither a label column nor as many 0/1 columns as classes.
    """
    folder = folder_of(section, root)
    table = read_table(folder / (section.manifest or ""))
    names = table.columns[image := table.image_column(section.image_column)]
    group = table.column(section.group_by, GROUP_COLUMNS)
    labels = _labels(table, section, num_classes, taken={image, group or image})
    sources, bad = _find(folder, names)
    for row, (reason, detail) in labels.wrong.items():
        bad.setdefault(row, BadImage(names[row], reason, detail))
    groups = [cell or name for cell, name in zip(table.columns[group], names, strict=True)] if group else names
    return Listing(
        ids=tuple(names),
        groups=tuple(groups),
        sources=tuple(sources),
        labels=labels.ids,
        classes=labels.classes,
        bad=bad,
    )


def _labels(table: Table, section: DataSection, num_classes: int, taken: set[str]) -> _Labels:
    """Find the labels: in the column asked for, in the columns named as the classes, in a usual column, in 0/1 columns."""
    classes = section.classes
    if classes and len(classes) != num_classes:
        raise _differ(table, classes, num_classes)
    if section.label_column is None and classes and all(name in table.columns for name in classes):
        return _one_hot(table, classes)
    if column := table.column(section.label_column, LABEL_COLUMNS):
        return _named(table, column, classes, num_classes)
    flags = tuple(
        name
        for name, cells in table.columns.items()
        if name not in taken and any(cells) and _NUMBERS.keys() >= set(cells) - {""}
    )
    if len(flags) == num_classes and not classes:
        return _one_hot(table, flags)
    if len(flags) > 1:
        raise _differ(table, flags, num_classes)
    count = len(next(iter(table.columns.values())))
    return _Labels(np.full(count, -1, dtype=np.int64), classes or tuple(map(str, range(num_classes))))


def _differ(table: Table, found: tuple[str, ...], num_classes: int) -> AnchorageError:
    return AnchorageError(
        CLASSES_DIFFER,
        f"{table.file}: found {len(found)} classes ({', '.join(found[:10])}), the model has {num_classes}; "
        "list the federation's classes in `classes`, or name the labelColumn",
    )


def _named(table: Table, column: str, classes: tuple[str, ...], num_classes: int) -> _Labels:
    cells = table.columns[column]
    found = tuple(sorted(set(cells) - {""}))
    numbered = not classes and all(cell.isascii() and cell.isdigit() for cell in found)
    if not classes and not numbered and len(found) != num_classes:
        raise _differ(table, found, num_classes)
    names = classes or (tuple(map(str, range(num_classes))) if numbered else found)
    position = {name: place for place, name in enumerate(names)}
    keys = [cell.lstrip("0") or "0" if numbered and cell else cell for cell in cells]
    labels = _Labels(np.array([position.get(key, -1) for key in keys], dtype=np.int64), names)
    for row, key in enumerate(keys):
        if key and key not in position:
            labels.wrong[row] = ("LabelOutsideClasses", f'the label "{cells[row][:40]}" is none of the classes')
    return labels


def _one_hot(table: Table, classes: tuple[str, ...]) -> _Labels:
    rows = zip(*(table.columns[name] for name in classes), strict=True)
    labels = _Labels(np.full(len(table.columns[classes[0]]), -1, dtype=np.int64), classes)
    for row, cells in enumerate(rows):
        values = [_NUMBERS.get(cell) for cell in cells]
        if None not in values and values.count(1) == 1:
            labels.ids[row] = values.index(1)
        elif any(cells):
            labels.wrong[row] = ("LabelAmbiguous", f"the class columns hold {','.join(cells)[:60]}, needed is one 1")
    return labels


def _find(folder: Path, names: list[str]) -> tuple[list[Source], dict[int, BadImage]]:
    """Find each image's file: by its path, else by its name anywhere below the folder."""
    files = image_files(folder)
    by_path = set(files)
    by_name: dict[str, list[str]] = {}
    for file in files:
        path = PurePosixPath(file)
        by_name.setdefault(path.name, []).append(file)
        by_name.setdefault(path.stem, []).append(file)
    sources: list[Source] = []
    bad: dict[int, BadImage] = {}
    seen: set[str] = set()
    for row, name in enumerate(names):
        path = PurePosixPath(name.replace("\\", "/"))
        matches = [str(path)] if str(path) in by_path else by_name.get(path.name, [])
        if len(path.parts) > 1 and str(path) not in by_path:
            matches = [file for file in matches if file.startswith(f"{path}.")]
        sources.append(folder / matches[0] if len(matches) == 1 else None)
        if name in seen:
            bad[row] = BadImage(name, "DuplicateId", "the table lists it twice")
        elif not matches:
            bad[row] = BadImage(name, "Missing", f"no such image ({', '.join(sorted(SUFFIXES))}) below {folder}")
        elif len(matches) > 1:
            bad[row] = BadImage(name, "Ambiguous", f"several files: {', '.join(matches[:3])}")
        seen.add(name)
    return sources, bad

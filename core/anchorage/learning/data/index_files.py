"""Lists of which image belongs to which silo, as they are published and as `fedctl data partition` writes them."""

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING, MANIFEST_WRONG, PARTITION_FILE_DIFFERS
from anchorage.api.regular_files import read_regular
from anchorage.learning.data.listing import Listing
from anchorage.learning.data.tables import read_table

Rows = NDArray[np.int64]
Image = str | int
"""A name, or a row of the pool from 0."""

TRAIN, TEST, VALIDATION, SERVER = "train", "test", "validation", "server"
"""What a list calls the training part, the test part, the validation part and the server's images."""

COLUMNS = ("image", "part", "silo", "labelled")


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A list's contents.

    Parameters
    ----------
    file : Path
        Where it was read.
    parts : mapping of str to list of Image
        Images of each silo, and of ``test``, ``validation`` and ``server``; a text file is one part without a name.
    labelled : mapping of str to list of Image, or None
        Those of them that keep their labels; None: all do.
    """

    file: Path
    parts: Mapping[str, list[Image]]
    labelled: Mapping[str, list[Image]] | None = None


class MatchedIndex:
    """A list beside the pool of images that it is of."""

    def __init__(self, index: IndexFile, pool: Listing) -> None:
        self._index, self._pool = index, pool

    def rows(self, name: str) -> tuple[Rows, Rows | None]:
        """Find a part's images in the pool, and those of them that keep their labels.

        Raises
        ------
        AnchorageError
            PARTITION_FILE_DIFFERS: the list has no such part, or names images that are not in the pool.
        """
        parts, labelled = self._index.parts, self._index.labelled
        if tuple(parts) == ("",):
            name = ""
        if name not in parts:
            raise AnchorageError(
                PARTITION_FILE_DIFFERS,
                f'{self._index.file.name} has no part "{name}"; it has {", ".join(list(parts)[:20])}: '
                "set partition.silo to one of them",
                redacted=f"the partition file has {len(parts)} parts, and not the one that partition.silo or use asks for",
            )
        return self._match(parts[name]), None if labelled is None else self._match(labelled.get(name, []))

    def _match(self, images: list[Image]) -> Rows:
        rows = self._find(images)
        if unknown := [image for image, row in zip(images, rows, strict=True) if row < 0]:
            raise AnchorageError(
                PARTITION_FILE_DIFFERS,
                f"{self._index.file.name} names {len(unknown)} images that are not among the {len(self._pool)} of the section, such as "
                f'"{str(unknown[0])[:60]}"; use the file that belongs to these images',
                redacted=f"the partition file names {len(unknown)} images that are not among the {len(self._pool)} of the section; use the file that "
                "belongs to these images",
            )
        return np.unique(rows)

    def _find(self, images: list[Image]) -> Rows:
        """Find images by row, by id, or by file name without folder and suffix; -1 for those that are not there.

        Texts of which none is a name, but all are numbers, are rows.
        """
        rows = [image if isinstance(image, int) else self._number_of(image) for image in images]
        texts = [image for image in images if isinstance(image, str)]
        if rows and max(rows) < 0 and all(text.isascii() and text.isdigit() for text in texts):
            rows = [int(image.lstrip("0")[:18] or 0) if isinstance(image, str) else image for image in images]
        positions = np.array([max(-1, min(row, len(self._pool))) for row in rows], dtype=np.int64)
        return np.where((positions >= 0) & (positions < len(self._pool)), positions, -1)

    def _number_of(self, name: str) -> int:
        return self._by_name.get(name, self._by_name.get(PurePosixPath(name).stem, -1))

    @cached_property
    def _by_name(self) -> dict[str, int]:
        stems = {PurePosixPath(id).stem: row for row, id in enumerate(self._pool.ids)}
        return stems | {id: row for row, id in enumerate(self._pool.ids)}


def read_index(file: Path) -> IndexFile:
    """Read a list: CSV or JSON by its suffix, else text with one image or row number a line.

    Raises
    ------
    AnchorageError
        DATA_MISSING: it cannot be read. MANIFEST_WRONG: it cannot be understood.
    """
    if file.suffix.lower() == ".csv":
        return _read_csv(file)
    try:
        text = read_regular(file).decode("utf-8-sig")
    except OSError as error:
        detail = f"cannot be read ({error.strerror}); check partition.file"
        raise AnchorageError(DATA_MISSING, f"{file} {detail}", redacted=f"the partition file {detail}") from error
    except UnicodeDecodeError as error:
        message = (
            f"{file} is no text in UTF-8; pickles (.pth) are never opened: turn it into JSON as docs/data.md shows"
        )
        raise AnchorageError(MANIFEST_WRONG, message) from error
    if file.suffix.lower() != ".json":
        return IndexFile(file, {"": [line.strip() for line in text.splitlines() if line.strip()]})
    try:
        return _from_json(file, json.loads(text))
    except json.JSONDecodeError as error:
        raise AnchorageError(MANIFEST_WRONG, f"{file}:{error.lineno} is no JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise AnchorageError(MANIFEST_WRONG, f"{file} is no list of images: {str(error)[:80]}") from error


def _read_csv(file: Path) -> IndexFile:
    """Read an image column, a column ``silo``, and where they are there ``part`` and ``labelled``.

    Only ``train`` rows go to silos, ``test`` and ``validation`` rows are these parts, others are left out.
    """
    table = read_table(file)
    images = table.columns[table.image_column(None)]
    silos = table.columns[table.column("silo", ()) or ""]
    roles = table.columns.get("part", [TRAIN] * len(images))
    marks = table.columns.get("labelled")
    parts: dict[str, list[Image]] = {}
    labelled: dict[str, list[Image]] = {}
    for row, (image, silo, role) in enumerate(zip(images, silos, roles, strict=True)):
        if role in (TRAIN, TEST, VALIDATION):
            name = silo if role == TRAIN else role
            parts.setdefault(name, []).append(image)
            if marks is None:
                continue
            if marks[row] not in ("0", "1"):
                message = f'{file}: row {row + 2} has "{marks[row][:40]}" under labelled; write 1 or 0'
                raise AnchorageError(MANIFEST_WRONG, message)
            if marks[row] == "1":
                labelled.setdefault(name, []).append(image)
    return IndexFile(file, parts, None if marks is None else labelled)


def _from_json(file: Path, document: Any) -> IndexFile:
    """Read lists by silo, plain or as RSCFed and SemiAnAgg publish them.

    ``{"0": […], "1": […]}`` or ``[[…], […]]``; the same under ``data_partition``; or under ``labeled`` and ``unlabeled``, which together
    are a silo's images. Beside these, ``test_list`` and ``validation_list`` are these parts; with ``train_list`` the silos' rows count in it.
    """
    known = document if isinstance(document, dict) else {}
    labelled = None
    if "labeled" in known:
        labelled = _lists(file, known["labeled"])
        others = _lists(file, known.get("unlabeled", {}))
        parts = {name: labelled.get(name, []) + others.get(name, []) for name in dict.fromkeys((*labelled, *others))}
    else:
        parts = _lists(file, known.get("data_partition", document))
    if "train_list" in known:
        train = _list(file, "train_list", known["train_list"])
        parts = _through(file, parts, train)
        labelled = None if labelled is None else _through(file, labelled, train)
    for part in (TEST, VALIDATION):
        if (key := f"{part}_list") in known:
            parts[part] = _list(file, key, known[key])
            if labelled is not None:
                labelled[part] = parts[part]
    return IndexFile(file, parts, labelled)


def _lists(file: Path, content: Any) -> dict[str, list[Image]]:
    if isinstance(content, list):
        content = {str(place): images for place, images in enumerate(content)}
    if not isinstance(content, dict):
        raise AnchorageError(MANIFEST_WRONG, f'{file} holds no lists by silo; write {{"0": [...], "1": [...]}}')
    return {name: _list(file, name, images) for name, images in content.items()}


def _list(file: Path, name: str, images: Any) -> list[Image]:
    if not isinstance(images, list) or not all(type(image) in (str, int) for image in images):
        raise AnchorageError(MANIFEST_WRONG, f'{file}: "{name}" is no list of names or row numbers')
    return images


def _through(file: Path, parts: Mapping[str, list[Image]], train: list[Image]) -> dict[str, list[Image]]:
    """Replace positions in the training list by what stands there."""
    for name, images in parts.items():
        for image in images:
            if not (isinstance(image, int) and 0 <= image < len(train)):
                message = f'{file}: "{name}" has {str(image)[:60]}, train_list has the rows 0 to {len(train) - 1}'
                raise AnchorageError(PARTITION_FILE_DIFFERS, message)
    return {name: [train[int(image)] for image in images] for name, images in parts.items()}


def write_index(file: Path, entries: Iterable[tuple[str, str, str, bool]]) -> None:
    """Write a CSV list that `read_index` reads.

    Parameters
    ----------
    file : Path
        What is written.
    entries : iterable of (image, part, silo, labelled)
        As the columns.

    Raises
    ------
    OSError
        It cannot be written.
    """
    with file.open("w", newline="", encoding="utf-8") as text:
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(COLUMNS)
        lines.writerows((image, part, silo, int(labelled)) for image, part, silo, labelled in entries)

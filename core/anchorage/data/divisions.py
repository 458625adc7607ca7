"""Which images of a pool a section means: test part, anchors, a silo's part."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from anchorage.data.digits import list_digits
from anchorage.data.folders import folder_of, list_folder
from anchorage.data.listing import Listing
from anchorage.data.manifests import list_manifest
from anchorage.data.partitions import divide
from anchorage.data.splits import Rows, anchor_rows, keep_labels, test_rows
from anchorage.data.tables import read_table
from anchorage.errors import AnchorageError
from anchorage.errors.data import DATA_MISSING, MANIFEST_WRONG, NO_IMAGES, PARTITION_FILE_DIFFERS
from anchorage.randomness import generator
from anchorage.spec.data import DataSection, Partition

TRAIN, TEST, SERVER = "train", "test", "server"
"""What a partition file calls the training part, the test part and the server's images."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of a pool holds.

    Parameters
    ----------
    name : str
        ``test``, ``anchors``, the number of a part, or the silo of a partition file.
    counts : tuple of int
        Images of each class.
    unlabelled : int
        Images without a label.
    """

    name: str
    counts: tuple[int, ...]
    unlabelled: int

    @property
    def images(self) -> int:
        """Images in all."""
        return sum(self.counts) + self.unlabelled


def listing_of(section: DataSection, root: Path, num_classes: int) -> Listing:
    """List the whole pool of a section, bad images included.

    Raises
    ------
    AnchorageError
        DATA_MISSING, MANIFEST_WRONG, CLASSES_DIFFER, or NO_IMAGES: there is nothing.
    """
    if section.format == "Digits":
        listing = list_digits(num_classes)
    elif section.format == "ImageFolder":
        listing = list_folder(section, root, num_classes)
    else:
        listing = list_manifest(section, root, num_classes)
    if not len(listing):
        raise AnchorageError(NO_IMAGES, f"{folder_of(section, root)} has no images; check path and manifest")
    return listing


def chosen(section: DataSection, root: Path, num_classes: int, seed: int) -> Listing:
    """List the images that a section means.

    Parameters
    ----------
    section : DataSection
        Pool and part.
    root : Path
        The data root.
    num_classes : int
        Classes of the model.
    seed : int
        The run's seed, the same at every site that shares the pool.

    Raises
    ------
    AnchorageError
        As `listing_of`, and PARTITION_IMPOSSIBLE, TOO_FEW_ANCHORS, PARTITION_FILE_DIFFERS, or NO_IMAGES: the part is empty.
    """
    pool = listing_of(section, root, num_classes)
    name = _name_of(section)
    if section.partition is not None and section.partition.recipe == "File":
        rows = _rows_in_file(section, section.partition, root, pool)
    elif section.use == "All":
        rows = np.arange(len(pool))
    else:
        rows = _drawn(section, pool, seed)[name]
    part = pool.select(rows)
    if not len(part):
        raise AnchorageError(NO_IMAGES, f'the part "{name}" of {len(pool)} images is empty; check use and partition')
    if section.labelled_percent < 100:
        rng = generator(seed, "labels", silo=name)
        part = replace(part, labels=keep_labels(part.labels, section.labelled_percent, rng))
    return part


def describe(section: DataSection, root: Path, *, num_classes: int, seed: int) -> tuple[Part, ...]:
    """Say what every part of a section's pool holds, without opening an image; what a partition file names but is not there is left out.

    Parameters
    ----------
    section : DataSection
        The pool and how it is divided; which part it means does not matter.
    root : Path
        The data root.
    num_classes : int
        Classes of the model.
    seed : int
        The run's seed.

    Raises
    ------
    AnchorageError
        As `chosen`.
    """
    pool = listing_of(section, root, num_classes)
    if section.partition is not None and section.partition.recipe == "File":
        named = _file_parts(section.partition, folder_of(section, root))
        found = {name: _find(ids, pool) for name, ids in named.items()}
        parts: Mapping[str, Rows] = {name: np.unique(rows[rows >= 0]) for name, rows in found.items()}
    else:
        parts = _drawn(section, pool, seed)
    described = []
    for name, rows in parts.items():
        labels = pool.labels[rows]
        counts = np.bincount(labels[labels >= 0], minlength=num_classes)
        described.append(Part(name, tuple(int(count) for count in counts), int((labels < 0).sum())))
    return tuple(described)


def _name_of(section: DataSection) -> str:
    if section.use == "Part" and section.partition is not None:
        return str(section.partition.part) if section.partition.silo is None else section.partition.silo
    return {"Test": TEST, "Anchors": "anchors", "Part": "", "All": "all"}[section.use]


def _drawn(section: DataSection, pool: Listing, seed: int) -> dict[str, Rows]:
    """Draw the test part, then the anchors, then the parts; each has a generator of its own."""
    parts: dict[str, Rows] = {}
    rest = np.arange(len(pool))
    if section.test_percent:
        parts[TEST] = test_rows(pool, section.test_percent, generator(seed, "test split"))
        rest = np.setdiff1d(rest, parts[TEST])
    if section.anchors:
        rng = generator(seed, "anchors")
        parts["anchors"] = rest[anchor_rows(pool.labels[rest], pool.classes, section.anchors, rng)]
        rest = np.setdiff1d(rest, parts["anchors"])
    if section.partition is None:
        parts["rest"] = rest
        return parts
    divided = divide(section.partition, pool.labels[rest], generator(seed, "partition"))
    return parts | {str(part): rest[rows] for part, rows in enumerate(divided)}


def _rows_in_file(section: DataSection, partition: Partition, root: Path, pool: Listing) -> Rows:
    """Find the rows that a partition file gives to a section."""
    if section.use == "All":
        return np.arange(len(pool))
    parts = _file_parts(partition, folder_of(section, root))
    if tuple(parts) == ("",):
        return _match(parts[""], pool, partition)
    name = partition.silo or {"Test": TEST, "Anchors": SERVER}.get(section.use, "")
    if name not in parts:
        raise AnchorageError(
            PARTITION_FILE_DIFFERS,
            f'{partition.file} has no part "{name}"; it has {", ".join(list(parts)[:20])}: set partition.silo to one of them',
        )
    return _match(parts[name], pool, partition)


def _file_parts(partition: Partition, folder: Path) -> dict[str, list[str]]:
    """Read a partition file: names of images by silo, and ``test``; a text file is one part without a name.

    A CSV file has an image column, a column ``silo``, and where it also has a column ``part``, only its ``train`` rows go to silos and
    its ``test`` rows are the test part.
    """
    file = folder / (partition.file or "")
    if file.suffix.lower() != ".csv":
        try:
            return {"": [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]}
        except OSError as error:
            raise AnchorageError(
                DATA_MISSING, f"{file} cannot be read ({error.strerror}); check partition.file"
            ) from error
        except UnicodeDecodeError as error:
            raise AnchorageError(MANIFEST_WRONG, f"{file} is no text in UTF-8; write one image a line") from error
    table = read_table(file)
    images = table.columns[table.image_column(None)]
    silos = table.columns[table.column("silo", ()) or ""]
    roles = table.columns.get("part", [TRAIN] * len(images))
    parts: dict[str, list[str]] = {}
    for image, silo, role in zip(images, silos, roles, strict=True):
        if role in (TRAIN, TEST):
            parts.setdefault(TEST if role == TEST else silo, []).append(image)
    return parts


def _find(names: list[str], pool: Listing) -> Rows:
    """Find images by id, by file name without folder and suffix, or by row number from 0; -1 for those that are not there."""
    by_name = {PurePosixPath(id).stem: row for row, id in enumerate(pool.ids)}
    by_name |= {id: row for row, id in enumerate(pool.ids)}
    rows = [by_name.get(name, by_name.get(PurePosixPath(name).stem, -1)) for name in names]
    if rows and max(rows) < 0 and all(name.isascii() and name.isdigit() for name in names):
        rows = [int(name) if int(name) < len(pool) else -1 for name in names]
    return np.array(rows, dtype=np.int64)


def _match(names: list[str], pool: Listing, partition: Partition) -> Rows:
    """Find images, all of them."""
    rows = _find(names, pool)
    if unknown := [name for name, row in zip(names, rows, strict=True) if row < 0]:
        raise AnchorageError(
            PARTITION_FILE_DIFFERS,
            f"{partition.file} names {len(unknown)} images that are not among the {len(pool)} of the section, such as "
            f'"{unknown[0][:60]}"; use the file that belongs to these images',
        )
    return np.unique(rows)

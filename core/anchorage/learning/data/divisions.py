"""Which images of a pool a section means: test part, anchors, a silo's part; and which of them keep their labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anchorage.api.data import DataSection, Partition
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import CLASSES_DIFFER, MANIFEST_WRONG, NO_IMAGES, PARTITION_IMPOSSIBLE
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.piece import PIECES, expect
from anchorage.learning.data.batch_partitions import labelled_rows
from anchorage.learning.data.decoders import image_suffixes
from anchorage.learning.data.folders import file_of
from anchorage.learning.data.index_files import SERVER, TEST, VALIDATION, MatchedIndex, read_index
from anchorage.learning.data.listing import TEST_ROW, TRAINING_ROW, VALIDATION_ROW, Listing
from anchorage.learning.data.long_tail import long_tailed_rows
from anchorage.learning.data.masks import MaskReader
from anchorage.learning.data.partitions import deal_groups, divide
from anchorage.learning.data.splits import Rows, anchor_rows, held_out_rows, keep_labels
from anchorage.learning.model_hooks import TaskHooks
from anchorage.learning.randomness import generator
from anchorage.learning.reader_hooks import ReaderHooks

_POOL = {
    "format",
    "claim_name",
    "path",
    "manifest",
    "image_column",
    "label_column",
    "label_columns",
    "label_separator",
    "no_finding",
    "blank",
    "group_by",
    "split_column",
    "mask_files",
    "match",
    "frames",
    "burned_in_text",
    "for_processing",
    "mask_column",
    "channel_files",
    "mask_values",
    "ignored_value",
    "unannotated",
    "class_map",
    "on_bad_image",
}
"""Fields that say what a pool lists."""

_OF_ONE: dict[str, bool | set[str]] = {
    "use": True,
    "partition_file": True,
    "labelled_percent": True,
    "on_bad_image": True,
    "partition": {"part", "silo"},
    "on_change": True,
    "class_counts": True,
    "unannotated": True,
}
"""Fields in which sections may differ that divide a pool alike."""

_SHOWN = 5
"""Kinds of other files that a message names."""


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """The images that a section means.

    Parameters
    ----------
    name : str
        ``test``, ``validation``, ``anchors``, ``all``, the number of a part, or the silo of a partition file.
    listing : Listing
        The images, with every label that is known.
    labelled : ndarray of bool, shape [n]
        Which of them keep their labels.
    """

    name: str
    listing: Listing
    labelled: NDArray[np.bool_]

    def counts(self, given_only: bool = False) -> tuple[int, ...]:
        """Count the images of each stratum, such as a class; with `given_only` only those that keep their labels."""
        strata = self.labelled_listing().strata if given_only else self.listing.strata
        counts = np.bincount(strata[strata >= 0], minlength=len(self.listing.stratum_names))
        return tuple(int(count) for count in counts)

    def labelled_listing(self) -> Listing:
        """Return the listing with the labels that are given."""
        return self.listing.keeping(self.labelled)


@dataclass(frozen=True, slots=True)
class _Share:
    """Rows of a pool, and those of them that keep their labels; None: all do."""

    rows: Rows
    labelled: Rows | None = None


class Pools:
    """Pools that are listed and divided once, however many sections take from them; what changes on disk later is not seen.

    Parameters
    ----------
    volumes : bool
        Whether the images of a segmentation are volumes: each NIfTI file, or series of DICOM slices, is one.
    """

    def __init__(self, *, volumes: bool = False) -> None:
        self._volumes = volumes
        self._listings: dict[tuple[object, ...], Listing] = {}
        self._indexes: dict[tuple[object, ...], MatchedIndex] = {}
        self._shares: dict[tuple[object, ...], dict[str, _Share]] = {}

    def choose(self, section: DataSection, root: Path, task: TaskHooks, seed: int, labelled: bool = True) -> Choice:
        """List the images that a section means.

        Parameters
        ----------
        section : DataSection
            Pool and part.
        root : Path
            The data root.
        task : TaskHooks
            The federation's task, which reads the labels.
        seed : int
            The run's seed, the same at every site that shares the pool.
        labelled : bool
            Whether labels are wanted: else a whole pool's folders and labels may have any name.

        Raises
        ------
        AnchorageError
            As `pool`, and PARTITION_IMPOSSIBLE, TOO_FEW_ANCHORS, PARTITION_FILE_DIFFERS, or NO_IMAGES: the part is empty.
        """
        pool = self.pool(section, root, task, labelled)
        if not task.one_of_several:
            _refuse_by_class(section, task)
        name = _name_of(section)
        share = self._share(section, root, seed, pool, name, task)
        if not len(share.rows):
            remedy = "check use and partition"
            raise AnchorageError(
                NO_IMAGES,
                f'the part "{name}" of {len(pool)} images is empty; {remedy}',
                redacted=f"the part of {len(pool)} images is empty; {remedy}",
            )
        listing = pool.select(share.rows)
        strata = listing.strata
        if share.labelled is not None:
            strata = np.where(np.isin(share.rows, share.labelled), strata, -1)
        if section.kept_labels < 100:
            strata = keep_labels(strata, section.kept_labels, generator(seed, "labels", silo=name))
        return Choice(name, listing, strata >= 0)

    def pool(self, section: DataSection, root: Path, task: TaskHooks, labelled: bool = True) -> Listing:
        """List the whole pool of a section, bad images included.

        Raises
        ------
        AnchorageError
            DATA_MISSING, OUTSIDE_FOLDER, MANIFEST_WRONG, NO_IMAGES: there is nothing; CLASSES_DIFFER: `unannotated` names what no mask leaves out; or
            as of `LabelReader.read`.
        """
        key = (root, task.name, task.model_dump_json(), labelled, section.model_dump_json(include=_POOL))
        if key not in self._listings:
            self._listings[key] = _list(section, root, task, labelled, self._volumes)
        return self._listings[key]

    def _share(self, section: DataSection, root: Path, seed: int, pool: Listing, name: str, task: TaskHooks) -> _Share:
        partition = section.division
        if section.taken == "All":
            return _Share(np.arange(len(pool)) if pool.split is None else np.flatnonzero(pool.split == TRAINING_ROW))
        if partition is not None and partition.recipe == "File":
            file = file_of(section, root, partition.file or "")
            of = (file, section.model_dump_json(include=_POOL))
            if of not in self._indexes:
                self._indexes[of] = MatchedIndex(read_index(file), pool)
            return _Share(*self._indexes[of].rows(name))
        key = (root, pool.stratum_names, seed, section.model_dump_json(exclude=_OF_ONE))
        if key not in self._shares:
            self._shares[key] = _draw_parts(section, pool, seed, whole_groups=not task.one_of_several)
        return self._shares[key][name]


def _list(section: DataSection, root: Path, task: TaskHooks, labelled: bool, volumes: bool) -> Listing:
    if mistake := task.unannotated_mistake(section.unannotated):
        redacted = f"unannotated names {len(section.unannotated)} classes, which are not classes of the foreground, or are all of them"
        raise AnchorageError(CLASSES_DIFFER, f"unannotated: {mistake}", redacted=redacted)
    if section.channel_files and not volumes:
        message = f"found channelFiles for {len(section.channel_files)} channels, but the model takes flat images"
        raise AnchorageError(MEANINGLESS_OVERRIDE, f"{message}; leave it out, or set spec.model.volume")
    reader = expect(PIECES["reader", section.format](), ReaderHooks)
    labels = task.label_reader(section.class_map, _unknown(section, labelled)).reading(section)
    if volumes and isinstance(labels, MaskReader):
        labels = labels.of_volumes()
    listing = reader.listing(section, root, labels)
    refuse_empty(listing, section, root)
    if section.split and listing.split is None:  # a reader of another package
        raise AnchorageError(
            MANIFEST_WRONG,
            f"the format {section.format} does not say which images are for a test; set splitColumn: None",
        )
    return listing


def refuse_empty(listing: Listing, section: DataSection, root: Path) -> None:
    """Refuse a pool without images.

    Raises
    ------
    AnchorageError
        NO_IMAGES: it has none; the message says what there is instead.
    """
    if not len(listing):
        others = listing.not_images
        raise AnchorageError(
            NO_IMAGES,
            _nothing(root / (section.claim_name or "") / section.path, others),
            redacted=f"no images that are read, and {sum(others.values())} other files; check path and manifest",
        )


def _nothing(folder: Path, not_images: Mapping[str, int]) -> str:
    """Say that a folder has no images, what it has instead, and what to do."""
    if not not_images:
        return f"{folder} has no images; check path and manifest"
    counted = ", ".join(f"{count} {kind}" for kind, count in islice(not_images.items(), _SHOWN))
    message = f"{folder} has no images that are read ({', '.join(sorted(image_suffixes()))}), but {sum(not_images.values())} other files ({counted})"
    return f"{message}; check path and manifest, or save the images in one of these formats"


def _unknown(section: DataSection, labelled: bool) -> Literal["Refuse", "Skip", "Unlabelled"]:
    """Say what becomes of names that are no classes; a division by classes needs the labels even of silos that do not see them."""
    return section.on_bad_image if labelled or section.taken != "All" else "Unlabelled"


def _name_of(section: DataSection) -> str:
    """Return what `_draw_parts` or a partition file calls the images of a section."""
    partition = section.division
    from_file = partition is not None and partition.recipe == "File"
    if section.taken == "Part" and partition is not None:
        return partition.silo or "" if from_file else str(partition.part)
    anchors = SERVER if from_file else "anchors"
    return {"Test": TEST, "Validation": VALIDATION, "Anchors": anchors}.get(section.taken, "all")


def _refuse_by_class(section: DataSection, task: TaskHooks) -> None:
    """Refuse what divides a pool by classes, of which an image of the task has no single one.

    Raises
    ------
    AnchorageError
        PARTITION_IMPOSSIBLE.
    """
    class_settings: dict[str, bool] = {}
    if (partition := section.division) is not None:
        class_settings[f"the recipe {partition.recipe}"] = partition.recipe not in ("Iid", "File")
        class_settings["labelledPerClass"] = partition.labelled_per_class > 0
        class_settings["imbalanceFactor"] = partition.imbalance_factor > 1
    remedies = {what: "divide by the recipe Iid or File alone" for what, holds in class_settings.items() if holds}
    if section.anchors and section.anchor_draw == "Balanced":
        remedies["anchorDraw Balanced"] = "set anchorDraw: Random"
    for what, remedy in remedies.items():
        why = f"found {what}, which is by classes, but an image of the task {task.name} has no single class"
        raise AnchorageError(PARTITION_IMPOSSIBLE, f"{why}; {remedy}")


def _draw_parts(section: DataSection, pool: Listing, seed: int, *, whole_groups: bool) -> dict[str, _Share]:
    """Draw the test part, the validation part, the anchors, then the parts; each has a generator of its own."""
    shares: dict[str, _Share] = {}
    rest = np.arange(len(pool))
    row_codes = {TEST: TEST_ROW, VALIDATION: VALIDATION_ROW}
    for name, percent in ((TEST, section.test_percent), (VALIDATION, section.validation_percent)):
        if pool.split is not None:
            shares[name] = _Share(np.flatnonzero(pool.split == row_codes[name]))
            rest = np.setdiff1d(rest, shares[name].rows)
        elif percent:
            rows = rest[held_out_rows(pool.select(rest), percent, generator(seed, f"{name} split"))]
            shares[name] = _Share(rows)
            rest = np.setdiff1d(rest, rows)
    if section.anchors:
        rng = generator(seed, "anchors")
        balanced = section.anchor_draw == "Balanced"
        rows = rest[anchor_rows(pool.strata[rest], pool.stratum_names, section.anchors, rng, balanced=balanced)]
        shares["anchors"] = _Share(rows)
        rest = np.setdiff1d(rest, rows)
    if section.division is not None:
        shares |= (
            _deal_groups(section.division, pool, rest, seed)
            if whole_groups
            else _parts(section.division, pool, rest, seed)
        )
    return shares


def _deal_groups(partition: Partition, pool: Listing, rest: Rows, seed: int) -> dict[str, _Share]:
    """Deal whole groups, such as patients, at random."""
    groups = pool.select(rest).groups
    divided = deal_groups(partition, groups, generator(seed, "partition"))
    return {str(part): _Share(rest[rows]) for part, rows in enumerate(divided)}


def _parts(partition: Partition, pool: Listing, rest: Rows, seed: int) -> dict[str, _Share]:
    each = partition.labelled_per_class
    if partition.imbalance_factor > 1:
        drawn = generator(seed, "long tail")
        rest = rest[long_tailed_rows(pool.strata[rest], len(pool.stratum_names), partition.imbalance_factor, drawn)]
    if not each:
        divided = divide(partition, pool.strata[rest], generator(seed, "partition"))
        return {str(part): _Share(rest[rows]) for part, rows in enumerate(divided)}
    dealt = labelled_rows(pool.strata[rest], partition.parts or 1, each, generator(seed, "labelled per class"))
    others = np.setdiff1d(np.arange(len(rest)), np.concatenate(dealt))
    divided = divide(partition, pool.strata[rest[others]], generator(seed, "partition"))
    return {
        str(part): _Share(rest[np.union1d(labelled, others[rows])], rest[labelled])
        for part, (labelled, rows) in enumerate(zip(dealt, divided, strict=True))
    }

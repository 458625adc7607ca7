"""From a data section to decoded images and a report."""

import logging
import math
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError, Failure
from anchorage.api.errors.data import BAD_IMAGES, CLASSES_DIFFER, DATA_MISSING, IMAGES_EXCEED_MEMORY, NO_IMAGES
from anchorage.api.model import ModelDescription
from anchorage.api.piece import expect
from anchorage.api.slot import unknown
from anchorage.api.task import UNKNOWN_PIXEL, Task
from anchorage.learning.data.decoders import input_of
from anchorage.learning.data.decoding import Decoded, Input, Intensity, decode_array, with_levels_of
from anchorage.learning.data.divisions import Choice, Pools
from anchorage.learning.data.images import ImageSet
from anchorage.learning.data.labels import Labels
from anchorage.learning.data.listed_images import decode
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.masks import DecodedMasks
from anchorage.learning.data.overlap import HASHED_SIZE, Contents, appearance, level_shares
from anchorage.learning.data.picture_store import PictureStore, StoreFullError
from anchorage.learning.data.pseudonyms import Pseudonyms, known_reason
from anchorage.learning.data.report import DataReport, Findings
from anchorage.learning.data.stored_pictures import Pictures
from anchorage.learning.data.volume_store import VolumeStore, read_case
from anchorage.learning.data.volumes import MASK_DIGEST, mask_digest
from anchorage.learning.model_hooks import TaskHooks
from anchorage.transport.memory import available_bytes

IN_MEMORY_BYTES = 512 << 20
"""Pictures of more bytes lie in a store, where there is one: 3,566 in colour with a side of 224 pixels."""
_SET = {
    "format",
    "claim_name",
    "path",
    "manifest",
    "split_column",
    "use",
    "partition",
    "partition_file",
    "test_percent",
    "validation_percent",
    "anchors",
}
"""Fields of a section by which a store finds its pictures again."""
_LISTED = {"format", "claim_name", "path", "manifest"}
"""Fields by which it finds the headers of a section's files again."""
_SHOWN = 3

_log = logging.getLogger(__name__)


def read(
    section: DataSection,
    root: Path,
    model: ModelDescription,
    seed: int,
    *,
    labelled: bool = True,
    pools: Pools | None = None,
    store: PictureStore | None = None,
    pseudonyms: Pseudonyms | None = None,
) -> tuple[ImageSet, DataReport]:
    """Read the images that a section means.

    Parameters
    ----------
    section : DataSection
        Where they are and which are meant.
    root : Path
        The data root.
    model : ModelDescription
        Size and channels that they get, and the federation's classes.
    seed : int
        The run's seed; sites that share a pool draw the same parts from it.
    labelled : bool
        Whether labels are wanted, as in `Pools.choose`.
    pools : Pools, optional
        What was listed and divided before.
    store : PictureStore, optional
        Where pictures lie that take more than `IN_MEMORY_BYTES`, or half of the free memory.
    pseudonyms : Pseudonyms, optional
        What images are called in logs and in what failures say outside of the site; it learns of every bad image, also where this raises.

    Raises
    ------
    AnchorageError
        BAD_IMAGES: some cannot be used and `onBadImage` is Refuse. DATA_MISSING: most may not be read. NO_IMAGES: none is left. IMAGES_EXCEED_MEMORY.
        As well as everything about folders, tables and partitions that `Pools.choose` raises.
    """
    listed = f"{root.resolve()}\0{section.model_dump_json(include=_LISTED)}"
    with nullcontext() if store is None else store.headers(listed):
        choice = (pools or Pools(volumes=model.volume is not None)).choose(
            section, root, expect(model.task, TaskHooks), seed, labelled
        )
    listing = choice.labelled_listing()
    pictures, findings = (
        decode_listing(listing, model) if store is None else _decode_stored(listing, section, root, model, store)
    )
    images, report, _ = assemble(choice, section, pictures, findings, pseudonyms)
    if pseudonyms is None:
        for remark in report.all_remarks(named=False):
            _log.warning("%s: %s", root / (section.claim_name or "") / section.path, remark)
    else:
        pseudonyms.remarks += report.all_remarks()
        for remark in report.redacted_remarks():
            _log.warning("the images: %s", remark)
    return images, report


def read_chosen(choice: Choice, section: DataSection, model: ModelDescription) -> tuple[ImageSet, DataReport, Labels]:
    """Read images as `read` does, and return behind them the labels that are known of them, [n, ...], of those without a given label, too."""
    return assemble(choice, section, *decode_listing(choice.labelled_listing(), model))


def _decode_stored(
    listing: Listing, section: DataSection, root: Path, model: ModelDescription, store: PictureStore
) -> tuple[Pictures, Findings]:
    """Return what `decode_listing` does; pictures of many images lie in the store."""
    if model.volume is not None:
        return store.volumes.read(_name(section, root, model), listing, model)
    needed = len(listing) * model.channels * model.image_size**2
    in_memory = listing.masks is not None or any(isinstance(source, np.ndarray) for source in listing.sources)
    if in_memory or needed <= min(IN_MEMORY_BYTES, available_bytes() // 4):  # half of it where pixels take two bytes
        return decode_listing(listing, model)
    try:
        return store.read(_name(section, root, model), listing, input_of(model))
    except StoreFullError as error:
        if needed > available_bytes():
            raise _no_memory(len(listing), needed, f"; {error}") from error
        _log.warning("%s; they stay in memory", error)
        return decode_listing(listing, model)


def _name(section: DataSection, root: Path, model: ModelDescription) -> str:
    """Return what a store knows a section's images by."""
    shown = model.model_dump_json(include={"intensity"}, exclude_none=True)
    return f"{root.resolve()}\0{section.model_dump_json(include=_SET)}\0{shown}\0{model.fitting}"


def decode_listing(listing: Listing, model: ModelDescription, folder: Path | None = None) -> tuple[Pictures, Findings]:
    """Decode a listing's images, and their masks; return those that can be used, [m, channels, H, W], and what was found of each.

    Pixels are uint8, or uint16 where any picture has more than 256 levels. Volumes lie in files: below the folder, or else as long as this process
    needs them.

    Raises
    ------
    AnchorageError
        IMAGES_EXCEED_MEMORY.
    """
    if model.volume is not None:
        store = VolumeStore.temporary() if folder is None else VolumeStore(folder)
        return store.read("\0".join(map(str, listing.sources)), listing, model)
    shape = (len(listing), model.channels, model.image_size, model.image_size)
    images = _room(shape, np.uint8)
    findings = Findings(listing)
    masks = None if listing.masks is None else listing.masks.room(model.image_size)
    try:
        for row, outcome in enumerate(decode(listing, input_of(model), masks)):
            if isinstance(outcome, Decoded):
                count = len(findings.good)
                if outcome.pixels.dtype == np.uint16 and images.dtype == np.uint8:
                    deeper = _room(shape, np.uint16)
                    for place in range(count):  # one at a time: no further copy of all pictures
                        deeper[place] = with_levels_of(images[place], np.uint16)
                    images = deeper
                images[count] = with_levels_of(outcome.pixels, images.dtype)
            findings.add(row, outcome)
    except MemoryError as error:
        raise _no_memory(len(listing), images.nbytes) from error
    if masks is not None:
        findings.take_masks(masks)
    images = images[: len(findings.good)]
    rows = findings.without_masks()
    return (images if len(rows) == len(images) else images[rows]), findings


def assemble(
    choice: Choice, section: DataSection, images: Pictures, findings: Findings, pseudonyms: Pseudonyms | None = None
) -> tuple[ImageSet, DataReport, Labels]:
    """Return what `read_chosen` does, of what `decode_listing` returned of the same files, whichever of them had a label then."""
    report = findings.report()
    if pseudonyms is not None:
        for row, bad in zip(report.bad_rows, report.bad, strict=True):
            pseudonyms.remember(bad, row, len(choice.listing))
    _refuse_bad(section, report, len(choice.listing), pseudonyms)
    known = findings.with_masks(choice.listing).select(findings.good)
    good = known.keeping(choice.labelled[findings.good])
    image_set = ImageSet(
        images,
        good.labels,
        good.ids,
        good.groups,
        good.strata,
        good.stratum_names,
        findings.digests(),
        _stated_counts(section, good.stratum_names),
        _find_unannotated(choice.listing),
        good.masks,
    )
    return image_set, report, known.labels


def _find_unannotated(listing: Listing) -> tuple[int, ...]:
    """Return the classes that nobody drew in a listing's masks."""
    masks = listing.masks
    return () if masks is None else tuple(map(masks.classes.index, dict.fromkeys(masks.unannotated)))


def _stated_counts(section: DataSection, classes: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return how many images of each class a section says there are.

    Raises
    ------
    AnchorageError
        CLASSES_DIFFER: it counts what is no class.
    """
    stated_counts = section.stated_counts
    if astray := [name for name in stated_counts if name not in classes]:
        raise AnchorageError(
            CLASSES_DIFFER,
            f"classCounts: {unknown(astray[0], classes)}",
            redacted=f"classCounts counts images of {len(astray)} names that are no class of the federation",
        )
    return tuple(stated_counts.get(name, 0) for name in classes) if stated_counts else None


def check(
    section: DataSection,
    root: Path,
    task: Task,
    seed: int = 0,
    *,
    labelled: bool = True,
    intensity: Intensity | None = None,
    volumes: ModelDescription | None = None,
) -> tuple[DataReport, Contents]:
    """Open every image that a section means, whatever `onBadImage` says; return what was found, and what is compared with other sections.

    Values of the images are shown by the model's `intensity`; `volumes` is a model of volumes, which are read as it takes them.

    Raises
    ------
    AnchorageError
        No report is possible: as `Pools.choose`.
    """
    every = section.model_copy(update={"on_bad_image": "Skip"})
    pools = Pools(volumes=volumes is not None)
    listing = pools.choose(every, root, expect(task, TaskHooks), seed, labelled).labelled_listing()
    if volumes is not None:
        return _check_volumes(listing, volumes)
    findings, fingerprints = Findings(listing), []
    masks = None if listing.masks is None else listing.masks.room(HASHED_SIZE)
    for row, outcome in enumerate(decode(listing, Input(HASHED_SIZE, 1, intensity), masks)):
        findings.add(row, outcome)
        if isinstance(outcome, Decoded):
            thumbnail = with_levels_of(outcome.pixels, np.uint8)
            fingerprints.append((appearance(thumbnail), level_shares(thumbnail)))
    if masks is not None:
        findings.take_masks(masks)
    fingerprints = [fingerprints[place] for place in findings.without_masks()]
    good = listing.select(findings.good)
    return findings.report(), Contents.of(good.ids, good.groups, findings.digests(), fingerprints)


def _check_volumes(listing: Listing, model: ModelDescription) -> tuple[DataReport, Contents]:
    """Do what `check` does with volumes, one at a time; they are compared with others by their middle slices."""
    findings, fingerprints = Findings(listing), []
    none = np.full((len(listing), MASK_DIGEST), UNKNOWN_PIXEL, np.uint8)
    masks = DecodedMasks(none, np.zeros((len(listing), len(model.task.outputs)), np.int64))
    for row in range(len(listing)):
        outcome = listing.bad.get(row) or read_case(listing, row, model)
        if isinstance(outcome, BadImage):
            findings.add(row, outcome)
            continue
        middle = outcome.values[0, :, :, outcome.values.shape[3] // 2]
        shown = decode_array(middle, Input(HASHED_SIZE, 1))
        hashed = appearance(with_levels_of(shown.pixels, np.uint8))
        fingerprints.append((hashed, level_shares(with_levels_of(middle, np.uint8))))
        findings.add(row, outcome)
        if outcome.mask is not None:
            masks.counts[row] = outcome.counts
            masks.pixels[row] = mask_digest(outcome.mask)
    if listing.masks is not None:
        findings.take_masks(masks)
    findings.without_masks()
    good = listing.select(findings.good)
    return findings.report(), Contents.of(good.ids, good.groups, findings.digests(), fingerprints)


def _room(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    if needed > available_bytes():
        raise _no_memory(shape[0], needed)
    try:
        return np.empty(shape, dtype)
    except MemoryError as error:
        raise _no_memory(shape[0], needed) from error


def _no_memory(count: int, needed: int, besides: str = "") -> AnchorageError:
    detail = (
        f"{count} images need {needed / 2**30:.1f} GiB of memory, {available_bytes() / 2**30:.1f} GiB are free{besides}"
    )
    text = f"{detail}; lower model.imageSize or use a larger machine"
    return AnchorageError(IMAGES_EXCEED_MEMORY, text, redacted=text)


def _refuse_bad(section: DataSection, report: DataReport, count: int, pseudonyms: Pseudonyms | None) -> None:
    """Refuse a section whose images cannot be used; `count` images were listed, masks included."""

    def refusal(failure: Failure, detail: str, remedy: str) -> AnchorageError:
        named = ", ".join(f"{bad.id} ({bad.reason}: {bad.detail})" for bad in report.bad[:_SHOWN])
        if pseudonyms is None:
            unnamed = ", ".join(
                f"{n} {known_reason(reason)}" for reason, n in Counter(bad.reason for bad in report.bad).most_common()
            )
        else:
            shown = zip(report.bad[:_SHOWN], report.bad_rows, strict=False)
            unnamed = ", ".join(pseudonyms.name_bad(bad, row, count) for bad, row in shown)
        return AnchorageError(failure, f"{detail}: {named}; {remedy}", redacted=f"{detail}: {unnamed}; {remedy}")

    locked = sum(bad.reason == "Unreadable" for bad in report.bad)
    if 2 * locked > report.listed:
        raise refusal(
            DATA_MISSING,
            f"{locked} of {report.listed} images may not be read",
            "give the user that reads images the right to (in a pod: fsGroup, or the volume's own permissions)",
        )
    if report.bad and section.on_bad_image == "Refuse":
        raise refusal(
            BAD_IMAGES,
            f"{len(report.bad)} of {report.listed} images cannot be used",
            "repair them or set onBadImage: Skip",
        )
    if not report.usable:
        raise refusal(NO_IMAGES, f"none of {report.listed} images can be used", "repair them")

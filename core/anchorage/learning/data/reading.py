"""From a data section to decoded images and a report."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import BAD_IMAGES, CLASSES_DIFFER, IMAGES_EXCEED_MEMORY, NO_IMAGES
from anchorage.api.model import ModelDescription
from anchorage.api.slot import unknown
from anchorage.learning.data.decoding import Decoded
from anchorage.learning.data.divisions import Choice, Pools
from anchorage.learning.data.images import ImageSet
from anchorage.learning.data.listed_images import decode
from anchorage.learning.data.listing import Listing
from anchorage.learning.data.overlap import HASHED_SIZE, Contents, appearance
from anchorage.learning.data.report import DataReport, Findings
from anchorage.transport.memory import available_bytes

_SHOWN = 3


def read(
    section: DataSection,
    root: Path,
    model: ModelDescription,
    seed: int,
    *,
    labelled: bool = True,
    pools: Pools | None = None,
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

    Raises
    ------
    AnchorageError
        BAD_IMAGES: some cannot be used and `onBadImage` is Refuse. NO_IMAGES: none is left. IMAGES_EXCEED_MEMORY.
        As well as everything about folders, tables and partitions that `Pools.choose` raises.
    """
    choice = (pools or Pools()).choose(section, root, model.classes, seed, labelled)
    images, report, _ = read_chosen(choice, section, model)
    return images, report


def read_chosen(
    choice: Choice, section: DataSection, model: ModelDescription
) -> tuple[ImageSet, DataReport, NDArray[np.int64]]:
    """Read images as `read` does, and return behind them the classes that are known of them, int64 [n], of those without a given label, too."""
    return assembled(choice, section, *decoded(choice.given(), model))


def decoded(listing: Listing, model: ModelDescription) -> tuple[NDArray[np.uint8], Findings]:
    """Decode a listing's images; return those that can be used, [m, channels, H, W], and what was found of each.

    Raises
    ------
    AnchorageError
        IMAGES_EXCEED_MEMORY.
    """
    images = _room(len(listing), model.channels, model.image_size)
    findings = Findings(listing)
    try:
        for row, outcome in enumerate(decode(listing, model.image_size, model.channels)):
            if isinstance(outcome, Decoded):
                images[len(findings.good)] = outcome.pixels
            findings.add(row, outcome)
    except MemoryError as error:
        raise _no_memory(len(listing), images.nbytes) from error
    return images[: len(findings.good)], findings


def assembled(
    choice: Choice, section: DataSection, images: NDArray[np.uint8], findings: Findings
) -> tuple[ImageSet, DataReport, NDArray[np.int64]]:
    """Return what `read_chosen` does, of what `decoded` returned of the same files, whichever of them had a label then."""
    report = findings.report()
    _refuse_bad(section, report)
    good = choice.given().select(findings.good)
    found = ImageSet(
        images, good.labels, good.ids, good.groups, good.classes, findings.digests(), _stated(section, good.classes)
    )
    return found, report, choice.listing.labels[findings.good]


def _stated(section: DataSection, classes: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return how many images of each class a section says there are.

    Raises
    ------
    AnchorageError
        CLASSES_DIFFER: it counts what is no class.
    """
    told = section.stated_counts
    if astray := [name for name in told if name not in classes]:
        raise AnchorageError(CLASSES_DIFFER, f"classCounts: {unknown(astray[0], classes)}")
    return tuple(told.get(name, 0) for name in classes) if told else None


def check(
    section: DataSection, root: Path, classes: tuple[str, ...], seed: int = 0, *, labelled: bool = True
) -> tuple[DataReport, Contents]:
    """Open every image that a section means, whatever `onBadImage` says; return what was found, and what is compared with other sections.

    Raises
    ------
    AnchorageError
        No report is possible: as `Pools.choose`.
    """
    every = section.model_copy(update={"on_bad_image": "Skip"})
    listing = Pools().choose(every, root, classes, seed, labelled).given()
    findings, appearances = Findings(listing), []
    for row, outcome in enumerate(decode(listing, image_size=HASHED_SIZE, channels=1)):
        findings.add(row, outcome)
        if isinstance(outcome, Decoded):
            appearances.append(appearance(outcome.pixels))
    good = listing.select(findings.good)
    seen = np.array(appearances, np.uint64).reshape(-1, 4)
    return findings.report(), Contents(good.ids, good.groups, findings.digests(), seen)


def _room(count: int, channels: int, image_size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    needed = count * channels * image_size**2
    if needed > available_bytes():
        raise _no_memory(count, needed)
    try:
        return np.empty((count, channels, image_size, image_size), dtype=np.uint8)
    except MemoryError as error:
        raise _no_memory(count, needed) from error


def _no_memory(count: int, needed: int) -> AnchorageError:
    return AnchorageError(
        IMAGES_EXCEED_MEMORY,
        f"{count} images need {needed / 2**30:.1f} GiB, {available_bytes() / 2**30:.1f} GiB are free; "
        "lower model.imageSize or use a larger machine",
    )


def _refuse_bad(section: DataSection, report: DataReport) -> None:
    examples = ", ".join(f"{bad.id} ({bad.reason}: {bad.detail})" for bad in report.bad[:_SHOWN])
    if report.bad and section.on_bad_image == "Refuse":
        raise AnchorageError(
            BAD_IMAGES,
            f"{len(report.bad)} of {report.listed} images cannot be used: {examples}; repair them or set onBadImage: Skip",
        )
    if not report.usable:
        raise AnchorageError(NO_IMAGES, f"none of {report.listed} images can be used: {examples}; repair them")

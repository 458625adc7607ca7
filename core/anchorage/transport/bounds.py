"""What a silo may say of itself and its work: lengths, alphabets and ranges, whatever carries it. Both ends check it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.base import PACKAGE_PATTERN
from anchorage.api.errors import AnchorageError, transfer
from anchorage.api.silo_state import MOST_PACKAGES
from anchorage.api.text import printable
from anchorage.transport.messages import SYSTEM, VALIDATION, Announcement, Evaluation, Profile
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.versions import VERSION

MOST_IMAGES = 10**8
"""No silo has more."""
MOST_COUNT = 2**31
"""No other count, such as of steps, is larger."""
MOST_USED = 1e9
"""No training uses more, percent of a processor or MB."""
MOST_NAMES = 256
"""Samples, metrics or arrays in one message."""
TALLY_DTYPES = ("int64", "float64")
"""Dtypes of sums over images."""
MOST_TALLIED = 10**7
"""Numbers in one array of a tally."""
LARGEST_SUM = 1e18
"""No sum over images is larger."""
LONGEST_TASK = 128
MOST_ANSWER_BYTES = 1 << 20
"""Bytes of an answer to a step of secure aggregation."""
LONGEST_MESSAGE = 1024
"""Characters of a failure's message; the rest is cut off."""
IMAGE_COUNTS = frozenset({"train", "labelled", "unlabelled", "selected", "smallest_group"})
"""Samples of an announcement that are images of the silo."""

_TASK = re.compile(f"[0-9A-Za-z._-]{{1,{LONGEST_TASK}}}")
_NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_. -]{0,63}(/[0-9A-Za-z_][0-9A-Za-z_. -]{0,63}){0,3}")
PACKAGE = re.compile(PACKAGE_PATTERN, re.ASCII)
_DIGEST = re.compile("[0-9a-f]{0,64}")
_CODE = re.compile(r"ANC-\d{4}")


def check_profile(profile: Profile) -> None:
    """Check what a silo says when it joins.

    Raises
    ------
    AnchorageError
        OUT_OF_BOUNDS: a text has another form, or the number of images cannot be.
    """
    _require(profile.labels in ("None", "All", "Partial"), "labels", "needed are None, All or Partial")
    _require(
        0 <= profile.samples <= MOST_IMAGES, "samples", f"{profile.samples} images, allowed are 0 to {MOST_IMAGES}"
    )
    _require(bool(VERSION.fullmatch(profile.version)), "version", "it is no version")
    _require(bool(_DIGEST.fullmatch(profile.fingerprint)), "fingerprint", "it is no hexadecimal digest")
    count = len(profile.packages)
    _require(count <= MOST_PACKAGES, "packages", f"{count} packages, allowed are 0 to {MOST_PACKAGES}")
    _require(all(map(PACKAGE.fullmatch, profile.packages)), "packages", "one is no name with a version")


def check_announcement(announcement: Announcement, images: int) -> None:
    """Check what a silo with so many images says of its update.

    Raises
    ------
    AnchorageError
        OUT_OF_BOUNDS: a name has another form, there are too many, or a count cannot be, nor its score of its own model, nor what it used.
    """
    check_task(announcement.task)
    for what, names in (
        ("samples", announcement.samples),
        ("metrics", announcement.metrics),
        ("auxiliary data", announcement.auxiliary),
    ):
        _check_names(what, names)
    _check_counts(announcement.samples, images)
    for name, used in announcement.metrics.items():
        possible = not name.startswith(SYSTEM) or 0 <= used <= MOST_USED
        _require(possible, "metrics", f"{name} is {used}, allowed are 0 to {MOST_USED:.0e}")
    if VALIDATION in announcement.auxiliary_data:
        _check_counted_images(announcement.auxiliary_data[VALIDATION], images)
    _check_head(announcement.audit_head)


def check_evaluation(evaluation: Evaluation, images: int) -> None:
    """Check how a silo with so many images scored a model.

    Raises
    ------
    AnchorageError
        OUT_OF_BOUNDS: an array of the tally is of another dtype, not finite or too large, or ``validation`` counts more images.
    """
    check_task(evaluation.task)
    _check_head(evaluation.audit_head)
    if evaluation.answer:
        fits = len(evaluation.answer) <= MOST_ANSWER_BYTES and not evaluation.tally
        _require(fits, "answer", f"it has {len(evaluation.answer)} bytes, or comes with a tally")
        return
    _require(evaluation.images <= images, "images", f"{evaluation.images} were scored, of {images}")
    _check_names("tally", evaluation.tally)
    for name, array in evaluation.tally.items():
        if name == VALIDATION:
            _check_counted_images(array, images)
        else:
            _check_sums(name, array)


def _check_sums(name: str, array: NDArray[Any]) -> None:
    what = f"tally {name}"
    _require(array.dtype in TALLY_DTYPES, what, f"its dtype is {array.dtype}, allowed are {', '.join(TALLY_DTYPES)}")
    _require(array.size <= MOST_TALLIED, what, f"it has {array.size} numbers, allowed are {MOST_TALLIED}")
    _require(bool((np.abs(array) <= LARGEST_SUM).all()), what, f"a sum is not finite, or above {LARGEST_SUM:.0e}")


def _check_counted_images(counts: NDArray[Any], images: int) -> None:
    """Check counts of images: [2], right ones and all; [C, C], by true and predicted class; or [2, C, k], shares of those of each class."""
    what, square, pair = VALIDATION, counts.ndim == 2 and len(set(counts.shape)) == 1, counts.shape == (2,)
    parts = counts.ndim == 3 and counts.shape[0] == 2 and counts.size <= MOST_TALLIED
    _require(square or pair or parts, what, f"its shape is {counts.shape[:4]}")
    _require(counts.dtype.kind in "biuf", what, f"its dtype is {counts.dtype}")
    _require(bool(((counts >= 0) & (counts <= images)).all()), what, f"a count is not 0 to {images}")
    if parts:
        most = float(counts.sum((0, 2)).max(initial=0))
        _require(most <= images + 1e-6, what, f"a class has {most:g} images, of {images}")
        return
    total, right = (int(counts[1]), int(counts[0])) if pair else (int(counts.sum()), int(counts.trace()))
    _require(right <= total <= images, what, f"{right} of {total} right, of {images} images")


def check_task(task: str) -> None:
    """Check a task's id.

    Raises
    ------
    AnchorageError
        OUT_OF_BOUNDS: it has another form.
    """
    _require(bool(_TASK.fullmatch(task)), "task", "it is no id of a task")


def check_code(code: str) -> None:
    """Check a failure's code.

    Raises
    ------
    AnchorageError
        OUT_OF_BOUNDS: it has another form.
    """
    _require(bool(_CODE.fullmatch(code)), "code", "it is no code such as ANC-1301")


def one_line(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return foreign text without control characters, on one line and cut to a length."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return printable(cut)


def _check_names(what: str, names: Iterable[str]) -> None:
    name_list = list(names)
    _require(len(name_list) <= MOST_NAMES, what, f"{len(name_list)} names, allowed are {MOST_NAMES}")
    for name in name_list:
        _require(bool(_NAME.fullmatch(name)), what, f"the name {one_line(name, 40)!r} is not allowed")


def _check_head(head: SignedHead | None) -> None:
    _require(head is None or head.bounded, "audit head", "it is none of a log")


def _check_counts(samples: Mapping[str, int], images: int) -> None:
    for name, count in samples.items():
        most = images if name in IMAGE_COUNTS else MOST_COUNT
        _require(0 <= count <= most, "samples", f"{name} is {count}, allowed are 0 to {most}")


def _require(holds: bool, what: str, detail: str) -> None:
    if not holds:
        raise AnchorageError(transfer.OUT_OF_BOUNDS, f"{what}: {detail}")

"""Images that the federation is scored on must not be trained on: compared by content, so that names do not matter.

Silos learn of the server's images only keyed digests of 8 bytes, by which each recognises its own images among them; nothing about its images
leaves a silo for it, and no silo learns of another's.
"""

import base64
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import HELD_OUT_TRAINED
from anchorage.api.run import HeldOut, RunDescription
from anchorage.learning.data.images import ImageSet
from anchorage.learning.data.listing import BadImage
from anchorage.learning.data.pseudonyms import Pseudonyms

Treatment = Literal["Refuse", "Skip", "Allow"]

_SHOWN = 3

_log = logging.getLogger(__name__)


def describe_held_out(sets: Sequence[ImageSet], key: bytes, treatment: Treatment) -> HeldOut | None:
    """Return what silos are told of the images that the federation is scored on; None where there are none.

    Parameters
    ----------
    sets : sequence of ImageSet
        The images.
    key : bytes
        32 bytes of the run; without it nobody can tell whose digests they are.
    treatment : str
        What becomes of an image that is trained on, too.
    """
    if not sets:
        return None
    images = np.concatenate([_key_digests((digest.tobytes() for digest in each.digests), key) for each in sets])
    groups = _key_digests((name.encode() for name in sorted({name for each in sets for name in _groups(each)})), key)
    return HeldOut(images=_encode_digests(images), groups=_encode_digests(groups), treatment=treatment)


def without_held_out(
    images: ImageSet, held_out: HeldOut | None, key: bytes, owner: str, pseudonyms: Pseudonyms | None = None
) -> ImageSet:
    """Return the images that may be trained on; a patient or lesion that is on both sides is a warning, as names may agree by chance.

    Parameters
    ----------
    images : ImageSet
        What somebody wants to train on.
    held_out : HeldOut or None
        What the federation is scored on.
    key : bytes
        As `describe_held_out` had it.
    owner : str
        Whose images they are, for messages.
    pseudonyms : Pseudonyms, optional
        What images are called in logs and in what a failure says outside of the site; it learns of the images that are scored on.

    Raises
    ------
    AnchorageError
        HELD_OUT_TRAINED: some are scored on, too, and the federation's document refuses that, or none would be left.
    """
    if held_out is None:
        return images
    both = np.isin(_key_digests((digest.tobytes() for digest in images.digests), key), _read(held_out.images))
    names = sorted(_groups(images))
    common = np.isin(_key_digests((name.encode() for name in names), key), _read(held_out.groups))
    if common.any():
        message = (
            f"{owner}: {common.sum()} patients or lesions have the same names as some that the federation is scored on"
        )
        named = f"{message}, such as {_some(np.array(names)[common])}"
        if pseudonyms is not None:
            pseudonyms.remarks.append(named)
        _log.warning("%s", named if pseudonyms is None else message)
    if not both.any() or held_out.treatment == "Allow":
        return images
    detail = f"{owner}: {both.sum()} of {len(images)} images are those that the federation is scored on, too"
    rows = [int(row) for row in np.flatnonzero(both)]
    named, shown = f"{detail}, such as {_some([images.ids[row] for row in rows])}", detail
    if pseudonyms is not None:
        for row in rows:
            pseudonyms.remember(
                BadImage(images.ids[row], "HeldOut", "the federation is scored on it"), row, len(images)
            )
        shown += f", such as {_some([pseudonyms.name(images.ids[row], row, len(images)) for row in rows])}"
    if held_out.treatment == "Refuse" or both.all():
        remedy = "remove them, or set spec.evaluation.onLeakage: Skip"
        raise AnchorageError(HELD_OUT_TRAINED, f"{named}; {remedy}", redacted=f"{shown}; {remedy}")
    _log.warning("%s; they are left out of training", named if pseudonyms is None else shown)
    return images.select(np.flatnonzero(~both))


def trainable(
    images: ImageSet, labels: str, silo: str, run: RunDescription, pseudonyms: Pseudonyms | None = None
) -> ImageSet:
    """Return what a silo with these `labels` (None, All or Partial) may train on; `pseudonyms` as of `without_held_out`.

    Raises
    ------
    AnchorageError
        As `without_held_out`, or IMAGES_UNLABELLED.
    """
    silo_images = without_held_out(images, run.held_out, bytes.fromhex(run.data_key), f"silo {silo}", pseudonyms)
    return silo_images.for_silo(labels, silo)


def kept_apart(
    images: Mapping[str, ImageSet], treatment: Treatment, key: bytes
) -> tuple[dict[str, ImageSet], HeldOut | None]:
    """Return the server's images without those that are in two of its parts, and what silos are told of those that are scored.

    Test images go before validation images, both before anchors.

    Raises
    ------
    AnchorageError
        As `without_held_out`.
    """
    images_left: dict[str, ImageSet] = {}
    for name in ("test", "validation", "anchors"):
        if name in images:
            held_out = describe_held_out(list(images_left.values()), key, treatment)
            images_left[name] = without_held_out(images[name], held_out, key, name)
    return images_left, describe_held_out(
        [images_left[name] for name in images_left if name != "anchors"], key, treatment
    )


def _groups(images: ImageSet) -> set[str]:
    """Return the patients or lesions that a table names; an image without one is a group of its own, under its own name."""
    return {group for group, name in zip(images.groups, images.ids, strict=True) if group != name}


def _key_digests(contents: Iterable[bytes], key: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(blake3(content, key=key).digest(8) for content in contents), "<u8")


def _encode_digests(digests: NDArray[np.uint64]) -> str:
    return base64.b64encode(np.sort(digests).tobytes()).decode()


def _read(text: str) -> NDArray[np.uint64]:
    return np.frombuffer(base64.b64decode(text), "<u8")


def _some(names: Sequence[str] | NDArray[np.str_]) -> str:
    return ", ".join(map(str, names[:_SHOWN])) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")

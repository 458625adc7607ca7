"""Labels of other tasks than classification: several findings per image, and masks. They are recognised so that they do not become classes."""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import TASK_UNSUPPORTED

SEVERAL = (
    "several findings per image are no single class; the task multiLabel learns them (task: {multiLabel: {labels: [...]}}), "
    "Anchorage classifies one class per image"
)
_IMAGES = frozenset({"image", "images", "img", "imgs", "imagestr", "imagests"})
_MASKS = frozenset(
    {
        "mask",
        "masks",
        "label",
        "labels",
        "annotation",
        "annotations",
        "segmentation",
        "segmentations",
        "groundtruth",
        "labelstr",
        "labelsts",
    }
)
"""Folders of images and folders of masks, in lower case without dashes and underscores."""


def several_findings(names: Collection[str], known: Collection[str]) -> list[str]:
    """Return the labels that name several findings, such as ``effusion|mass``.

    A separator alone decides nothing: ``atelectasis, right`` may be one class. Each part must be a label or class by itself. Few names of
    classes contain ``|`` or ``;``: their parts may also recur in other labels, and then all labels with that separator count.

    Parameters
    ----------
    names : collection of str
        Labels that are no classes.
    known : collection of str
        Labels of the same table, and classes.
    """
    known_words = {name.strip().casefold() for name in known}
    finding_names: list[str] = []
    for separator in "|;,":
        split = {name: [part.strip().casefold() for part in name.split(separator)] for name in dict.fromkeys(names)}
        split = {name: parts for name, parts in split.items() if len(parts) > 1 and all(parts)}
        listing = separator != ","
        recurring = Counter(part for parts in split.values() for part in set(parts)) if listing else Counter[str]()
        sure = [
            name for name, parts in split.items() if all(part in known_words or recurring[part] > 1 for part in parts)
        ]
        finding_names += split if listing and sure else sure
    return list(dict.fromkeys(finding_names))


def refuse_several(place: str, counts: Mapping[str, int], remedy: str) -> None:
    """Refuse labels that name several findings; `counts` has the number of images of each.

    Raises
    ------
    AnchorageError
        TASK_UNSUPPORTED: there is one.
    """
    if not counts:
        return
    message = (
        f'{place}: {sum(counts.values())} images have labels such as "{next(iter(counts))[:60]}": {SEVERAL}; {remedy}'
    )
    redacted = f"{sum(counts.values())} images have labels that name several findings: {SEVERAL}; {remedy}"
    raise AnchorageError(TASK_UNSUPPORTED, message, redacted=redacted)


def is_image_folder(name: str) -> bool:
    """Return whether a folder is called as one of images that have masks."""
    return _word(name) in _IMAGES


def is_mask_folder(name: str) -> bool:
    """Return whether a folder is called as one of masks."""
    return _word(name) in _MASKS


def _word(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def refuse_masks(folder: Path, names: Collection[str]) -> None:
    """Refuse folders of images beside folders of masks; `names` are the folders that hold images.

    Raises
    ------
    AnchorageError
        TASK_UNSUPPORTED: these are such folders.
    """
    images = [name for name in sorted(set(names)) if _word(name) in _IMAGES]
    masks = [name for name in sorted(set(names)) if is_mask_folder(name)]
    if images and masks:
        message = (
            f"{folder} has the folders {images[0]} and {masks[0]}, which look like images and their masks, but the task is another: for masks "
            f"set task: {{segmentation: {{classes: [...]}}}}; else put images in a folder per class, or label them in a table; of images without "
            f"labels name {folder / images[0]} alone"
        )
        redacted = "folders look like images and their masks, but the task is no segmentation; name the folder of the images alone"
        raise AnchorageError(TASK_UNSUPPORTED, message, redacted=redacted)

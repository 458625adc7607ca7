"""Folders of images with masks: whether a study is a segmentation, and what the values of a site's masks mean."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from anchorage.api.data import SiloData
from anchorage.learning.data.decoding import RefusedImageError
from anchorage.learning.data.label_kinds import is_image_folder
from anchorage.learning.data.listing import Listing
from anchorage.learning.data.mask_folders import list_pairs
from anchorage.learning.data.masks import MaskReader, mask_values

SAMPLED = 16
"""Masks of a site that are opened."""
_MOST_VALUES = 8
"""Different values of masks but 0, up to which they are taken for classes: a JPEG, or smooth edges, have many."""


def values_at(section: SiloData, root: Path) -> tuple[int, ...] | None:
    """Return the values but 0 that some masks of a folder have, ascending; None where most images have no mask, or lie in folders of classes.

    Raises
    ------
    AnchorageError
        The folder cannot be read.
    """
    listing = list_pairs(section, root, MaskReader(("background", "foreground")))
    files = [] if listing.masks is None else [file for file in listing.masks.files if file is not None]
    if not files or 2 * len(files) <= len(listing) or len(class_folders(listing)) > 1:
        return None
    values_seen: set[int] = set()
    for row in np.unique(np.linspace(0, len(files) - 1, SAMPLED).astype(int)):
        try:
            values_seen |= set(np.unique(mask_values(files[row])).tolist())
        except RefusedImageError:  # which `fedctl data check` names
            continue
    values = tuple(sorted(values_seen - {0}))
    return values if 0 < len(values) <= _MOST_VALUES else None


def classes_of(values: Sequence[Sequence[int]], wanted_classes: Sequence[str]) -> Sequence[str]:
    """Return the names of the classes, background first, of what `values_at` returned for each site, unless names are given."""
    if wanted_classes:
        return wanted_classes
    most = max(map(len, values))
    return ("background", "foreground") if most == 1 else ("background", *(f"class {n}" for n in range(1, most + 1)))


def named_values(values: Sequence[int], classes: Sequence[str]) -> Mapping[str, str]:
    """Return a section's `maskValues`: the values in their order; none where value i is class i already, or their number is another."""
    if len(values) != len(classes) - 1 or tuple(values) == tuple(range(1, len(classes))):
        return {}
    return {str(value): name for value, name in zip(values, classes[1:], strict=True)}


def class_folders(listing: Listing) -> set[str]:
    """Return the first folders of images that may be classes."""
    return {first for name in listing.ids if (first := name.split("/", 1)[0]) != name and not is_image_folder(first)}

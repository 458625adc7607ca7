"""A set of decoded images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.silo import IMAGES_UNLABELLED
from anchorage.learning.data.labels import Labels, as_integers, is_known, only_known
from anchorage.learning.data.masks import Masks
from anchorage.learning.data.stored_pictures import Pictures


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size with their labels; row i of everything is image i.

    Parameters
    ----------
    images : Pictures, shape [n, channels, H, W]
        Pixels, 0 to 255, in memory or in a file.
    labels : ndarray, shape [n, ...]
        Labels (`anchorage.learning.data.labels`).
    ids : tuple of str
        Names that stay the same from run to run: file name without folder and suffix, or row number.
    groups : tuple of str
        Lesion or patient; images of one group show the same thing.
    strata : ndarray of int64, shape [n]
        Groups whose shares splits keep even, such as classes; -1 without a label.
    stratum_names : tuple of str
        Their names.
    digests : ndarray of uint64, shape [n]
        Of each image's file, or of its pixels where it has none: equal for equal images, whatever their names.
    stated_counts : tuple of int, length C, or None
        Images of each stratum as the site's records tell them, labelled or not; None: nobody told.
    unannotated : tuple of int
        Classes that nobody drew in their masks (`DataSection.unannotated`).
    masks : Masks or None
        Files of the masks that the labels were made of; None: labels are no masks.
    """

    images: Pictures
    labels: Labels
    ids: tuple[str, ...]
    groups: tuple[str, ...]
    strata: NDArray[np.int64]
    stratum_names: tuple[str, ...]
    digests: NDArray[np.uint64]
    stated_counts: tuple[int, ...] | None = None
    unannotated: tuple[int, ...] = ()
    masks: Masks | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: NDArray[np.integer] | Sequence[int]) -> Self:
        """Return the images at some rows, in that order."""
        rows = np.asarray(indices, dtype=np.int64)
        return replace(
            self,
            images=self.images[rows],
            labels=self.labels[rows],
            strata=self.strata[rows],
            ids=tuple(self.ids[row] for row in rows),
            groups=tuple(self.groups[row] for row in rows),
            digests=self.digests[rows],
            masks=None if self.masks is None else self.masks.select(rows.tolist()),
        )

    def fingerprint(self, key: bytes) -> str:
        """Return keyed BLAKE3 (`key`: 32 bytes), 32 hex digits, over every image's digest with its label, whatever their names and order."""
        rows = np.column_stack([self.digests, as_integers(self.labels)])
        return blake3(rows[np.lexsort(rows.T)].tobytes(), key=key).hexdigest(16)

    def rename(self, name: Callable[[str], str]) -> Self:
        """Return the same images with what `name` makes of their names, and of their lesions' and patients'."""
        return replace(self, ids=tuple(map(name, self.ids)), groups=tuple(map(name, self.groups)))

    def without_labels(self) -> Self:
        """Return the same images, every one unlabelled; the pixels are shared."""
        none = np.zeros(len(self), np.bool_)
        return replace(self, labels=only_known(self.labels, none), strata=np.full(len(self), -1, np.int64))

    def for_silo(self, labels: str, silo: str) -> Self:
        """Return what a silo with these `labels` (None, All or Partial) may use.

        Raises
        ------
        AnchorageError
            IMAGES_UNLABELLED: all should have a label and one has none, or some should and none has.
        """
        if labels == "None":
            return self.without_labels()
        require_labels(labels, silo, int((~is_known(self.labels)).sum()), len(self))
        return self


def require_labels(labels: str, silo: str, unlabelled: int, images: int) -> None:
    """Refuse a silo with these `labels` (None, All or Partial) whose images lack them.

    Raises
    ------
    AnchorageError
        IMAGES_UNLABELLED: all should have a label and one has none, or some should and none has.
    """
    if unlabelled and (labels == "All" or (labels == "Partial" and unlabelled == images)):
        detail = f"silo {silo} has labels: {labels}, but {unlabelled} of {images} images have none"
        expected_labels = "None" if unlabelled == images else "Partial"
        hint = " (a folder per class, or the column that labelColumn names)" if unlabelled == images else ""
        raise AnchorageError(IMAGES_UNLABELLED, f"{detail}; set labels: {expected_labels}, or label them{hint}")

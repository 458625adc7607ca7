"""What a folder, a table or a bundled set lists, before any image is decoded.

Splits and partitions are drawn over a listing, so that they depend neither on which files are readable nor on the images' size.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from anchorage.learning.data.labels import Labels, ReadLabels, only_known
from anchorage.learning.data.masks import Masks
from anchorage.learning.data.sources import Source

TRAINING_ROW, VALIDATION_ROW, TEST_ROW = range(3)
"""What a row is for, where a pool comes divided."""


@dataclass(frozen=True, slots=True)
class BadImage:
    """An image that cannot be used.

    Parameters
    ----------
    id : str
        Its name in the listing.
    reason : str
        One CamelCase word, one of `REASONS`.
    detail : str
        What was found.
    """

    id: str
    reason: str
    detail: str


REASONS: Mapping[str, str] = {
    "Missing": "no such file",
    "OutsideFolder": "a link out of the claim's folder",
    "Ambiguous": "several files of its name",
    "Unreadable": "a file or folder that may not be read",
    "Empty": "a file of 0 bytes",
    "Blank": "every pixel has the same value",
    "NotAnImage": "none of the image formats that are read",
    "Unsupported": "a kind of file or of pixels that is not read",
    "Damaged": "truncated or corrupt content",
    "TooLarge": "more pixels or bytes than allowed",
    "LabelOutsideClasses": "a label that is no class of the federation",
    "LabelUnreadable": "a label that is nothing that the task reads",
    "LabelAmbiguous": "no label, several, or different ones where one is needed",
    "TransferSyntax": "DICOM in an encoding that is not read",
    "NotFinite": "values that are no numbers",
    "BurnedInText": "DICOM whose header says that text is in its pixels",
    "ForProcessing": "DICOM with a detector's raw values",
    "SeveralFindings": "a label that names several findings",
    "DuplicateId": "listed twice",
    "MixedSeries": "slices that are not of one volume",
    "Gap": "slices that are not equally far apart",
    "DuplicateSlice": "different slices at one place",
    "Sheared": "slices that are shifted against each other",
    "ChannelMissing": "a channel of a volume whose file is not there",
    "ChannelsDiffer": "channels of a volume that differ in size or place",
    "MaskAmbiguous": "several files that may be its mask",
    "MaskMissing": "a mask that is not there",
    "MaskUnreadable": "a mask that is no image, or damaged",
    "MaskDiffers": "a mask of another size or place than the image",
    "MaskInColour": "a mask in colour",
    "MaskValues": "a mask with values that are no class",
}
"""Why an image is bad, and what is said of it where nothing of its content may be said."""


@dataclass(frozen=True, eq=False)
class Listing:
    """Rows of a pool of images.

    Parameters
    ----------
    ids, groups : tuple of str
        As in `ImageSet`.
    sources : tuple of Source
        Where the pixels are.
    labels : ndarray, shape [n, ...]
        Labels (`anchorage.learning.data.labels`).
    strata : ndarray of int64, shape [n]
        Groups whose shares splits and partitions keep even, such as classes; -1 without a label.
    stratum_names : tuple of str
        Their names.
    bad : mapping of row to BadImage
        Rows that are known to be unusable without opening them.
    not_images : mapping of str to int
        Files of the pool's folder that are no images, by kind, such as ``DICOMDIR``, or their suffix.
    not_listed : int
        Images of the pool's folder that its table does not name.
    left_out : mapping of str to tuple of str
        Files and folders that are no pictures to learn from, by what they are, such as ``mask``.
    without_masks : bool
        Whether pictures of few colours beside others are masks, which are left out when they are decoded.
    split : ndarray of int8, shape [n], or None
        What each row is for (`TRAINING_ROW`, ...), where the pool comes divided.
    masks : Masks or None
        Masks of a segmentation; until they are read, `labels` say which images have one.
    remarks : tuple of str
        What people should know of the pool, a sentence each.
    findings : tuple of str
        As in `anchorage.learning.data.labels.ReadLabels`.
    """

    ids: tuple[str, ...]
    groups: tuple[str, ...]
    sources: tuple[Source, ...]
    labels: Labels
    strata: NDArray[np.int64]
    stratum_names: tuple[str, ...]
    bad: dict[int, BadImage]
    not_images: Mapping[str, int] = field(default_factory=dict)
    not_listed: int = 0
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without_masks: bool = False
    split: NDArray[np.int8] | None = None
    remarks: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    masks: Masks | None = None

    @classmethod
    def of(
        cls,
        *,
        ids: tuple[str, ...],
        groups: tuple[str, ...],
        sources: tuple[Source, ...],
        labels: ReadLabels,
        bad: dict[int, BadImage],
        not_images: Mapping[str, int] | None = None,
        not_listed: int = 0,
        left_out: Mapping[str, Sequence[str]] | None = None,
        without_masks: bool = False,
        split: NDArray[np.int8] | None = None,
        remarks: Iterable[str] = (),
        masks: Masks | None = None,
    ) -> Self:
        """Return the listing of images with the labels that a task read."""
        return cls(
            ids,
            groups,
            sources,
            labels.values,
            labels.strata,
            labels.stratum_names,
            bad,
            not_images or {},
            not_listed,
            {what: tuple(names) for what, names in (left_out or {}).items()},
            without_masks,
            split,
            tuple(remarks),
            labels.findings,
            masks,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def keeping(self, keep_mask: NDArray[np.bool_]) -> Self:
        """Return the same images without the labels of those that do not keep theirs, bool [n]."""
        return replace(self, labels=only_known(self.labels, keep_mask), strata=np.where(keep_mask, self.strata, -1))

    def select(self, rows: NDArray[np.int64] | Sequence[int]) -> Self:
        """Return some rows, in that order."""
        chosen = [int(row) for row in rows]
        return replace(
            self,
            ids=tuple(self.ids[row] for row in chosen),
            groups=tuple(self.groups[row] for row in chosen),
            sources=tuple(self.sources[row] for row in chosen),
            labels=self.labels[np.asarray(chosen, dtype=np.int64)],
            strata=self.strata[np.asarray(chosen, dtype=np.int64)],
            split=None if self.split is None else self.split[np.asarray(chosen, dtype=np.int64)],
            bad={place: self.bad[row] for place, row in enumerate(chosen) if row in self.bad},
            masks=None if self.masks is None else self.masks.select(chosen),
        )

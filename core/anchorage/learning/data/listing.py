"""What a folder, a table or a bundled set lists, before any image is decoded.

Splits and partitions are drawn over a listing, so that they depend neither on which files are readable nor on the images' size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from anchorage.learning.data.labels import Labels, ReadLabels, only_known

Pixels = NDArray[np.uint8]
Source = Path | Pixels | None
"""A file, decoded pixels [H, W], or None where the listed image is not there."""


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


REASONS = (
    "Missing",
    "OutsideFolder",
    "Ambiguous",
    "Empty",
    "NotAnImage",
    "Unsupported",
    "Damaged",
    "TooLarge",
    "LabelOutsideClasses",
    "LabelUnreadable",
    "LabelAmbiguous",
    "SeveralFindings",
    "DuplicateId",
)
"""Why an image is bad: not there; a link out of the claim's folder; several files of its name; a file of 0 bytes; no image format; a kind of file
or of pixels that is not read; truncated or corrupt content; more pixels or bytes than allowed; a label that is no class; one that is
nothing that the task reads; no or several classes
in a one-hot row; a label that names several findings; listed twice."""


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
        Files of the pool's folder that are no images, by kind: ``DICOM``, ``NIfTI``, else their suffix.
    not_listed : int
        Images of the pool's folder that its table does not name.
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
    ) -> Self:
        """Return the listing of images with the labels that a task read."""
        found = (labels.values, labels.strata, labels.stratum_names)
        return cls(ids, groups, sources, *found, bad, not_images or {}, not_listed)

    def __len__(self) -> int:
        return len(self.ids)

    def keeping(self, kept: NDArray[np.bool_]) -> Self:
        """Return the same images without the labels of those that do not keep theirs, bool [n]."""
        return replace(self, labels=only_known(self.labels, kept), strata=np.where(kept, self.strata, -1))

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
            bad={place: self.bad[row] for place, row in enumerate(chosen) if row in self.bad},
        )

"""What a folder, a table or a bundled set lists, before any image is decoded.

Splits and partitions are drawn over a listing, so that they depend neither on which files are readable nor on the images' size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

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
    "LabelAmbiguous",
    "SeveralFindings",
    "DuplicateId",
)
"""Why an image is bad: not there; a link out of the claim's folder; several files of its name; a file of 0 bytes; no image format; a kind of file
or of pixels that is not read; truncated or corrupt content; more pixels or bytes than allowed; a label that is no class; no or several classes
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
    labels : ndarray of int64, shape [n]
        Class ids, -1 without a label.
    classes : tuple of str
        Names of the classes.
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
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    bad: dict[int, BadImage]
    not_images: Mapping[str, int] = field(default_factory=dict)
    not_listed: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: NDArray[np.int64] | Sequence[int]) -> Self:
        """Return some rows, in that order."""
        chosen = [int(row) for row in rows]
        return replace(
            self,
            ids=tuple(self.ids[row] for row in chosen),
            groups=tuple(self.groups[row] for row in chosen),
            sources=tuple(self.sources[row] for row in chosen),
            labels=self.labels[np.asarray(chosen, dtype=np.int64)],
            bad={place: self.bad[row] for place, row in enumerate(chosen) if row in self.bad},
        )

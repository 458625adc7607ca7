"""Labels of images as arrays, whatever the task: row i is image i, and what is not known is -1 in integers and NaN in floats.

Masks, a class for each pixel of an image, are uint8 [n, H, W], and 255 in them is not known: one byte per pixel.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.data import DataSection
from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.data.tables import Table

Labels = NDArray[Any]
"""Shape [n, ...], of the task's dtype."""

LABEL_COLUMNS = ("label", "class", "target", "diagnosis", "dx")
"""Names under which a column of labels is found, in this order, in any case."""


def is_known(labels: Labels) -> NDArray[np.bool_]:
    """Return which images have a label, bool [n]: one in which anything is known."""
    if labels.dtype.kind == "u":
        entries: NDArray[np.bool_] = np.not_equal(labels, UNKNOWN_PIXEL)
    else:
        entries = ~np.isnan(labels) if labels.dtype.kind == "f" else np.greater_equal(labels, 0)
    return entries if labels.ndim == 1 else np.any(entries, axis=tuple(range(1, labels.ndim)))


def only_known(labels: Labels, keep_mask: NDArray[np.bool_]) -> Labels:
    """Return labels [n, ...] without those of the images that do not keep theirs (`keep_mask`, bool [n])."""
    masked = labels.copy()
    masked[~keep_mask] = {"f": np.nan, "u": UNKNOWN_PIXEL}.get(labels.dtype.kind, -1)
    return masked


def as_integers(labels: Labels) -> NDArray[np.uint64]:
    """Return labels as uint64 [n, m] for digests: equal labels give equal rows; of masks digests of 8 bytes, [n, 1]."""
    if labels.dtype.kind == "u":
        digests = b"".join(blake3(np.ascontiguousarray(mask).data).digest(8) for mask in labels)
        return np.frombuffer(digests, "<u8").reshape(-1, 1)
    rows = labels.reshape(len(labels), -1) if labels.size else labels.reshape(len(labels), 0)
    return rows.astype(np.float64).view(np.uint64) if labels.dtype.kind == "f" else rows.astype(np.uint64)


@dataclass(frozen=True, eq=False)
class ReadLabels:
    """What a site's words for its images came to.

    Parameters
    ----------
    values : ndarray, shape [n, ...]
        The labels.
    strata : ndarray of int64, shape [n]
        Groups of images whose shares splits and partitions keep even, such as classes; -1 without a label.
    stratum_names : tuple of str
        Their names.
    wrong : dict of int to tuple of str
        Reason (one of `anchorage.learning.data.listing.REASONS`) and detail by image, of those that cannot be used.
    findings : tuple of str
        Names of the columns of labels [n, L] that are 1, 0, 2 (uncertain) or -1 (unknown); empty: labels are something else.
    """

    values: Labels
    strata: NDArray[np.int64]
    stratum_names: tuple[str, ...]
    wrong: dict[int, tuple[str, str]] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    def select(self, rows: Sequence[int]) -> "ReadLabels":
        """Return the labels of some rows, in that order."""
        wanted = np.asarray(rows, np.int64)
        wrong = {place: self.wrong[row] for place, row in enumerate(rows) if row in self.wrong}
        return ReadLabels(self.values[wanted], self.strata[wanted], self.stratum_names, wrong)


class LabelReader(ABC):
    """How a task reads what a site writes about its images: folders' names, and a table's columns."""

    def reading(self, section: DataSection) -> "LabelReader":
        """Return what reads the labels of a section, whose fields may say how they are written; itself, unless it is overridden."""
        return self

    @abstractmethod
    def read(self, names: Sequence[str], place: Path, kind: str) -> ReadLabels:
        """Turn names into labels.

        Parameters
        ----------
        names : sequence of str
            One per image, empty where it has no label.
        place : Path
            Folder or table, for messages.
        kind : str
            What the names are: ``folder`` or ``label``.
        """

    def read_table(self, table: Table, column: str | None, used_columns: set[str]) -> ReadLabels:
        """Turn a table's cells into labels: those of the column that was asked for, else of one of `LABEL_COLUMNS`, else none.

        Parameters
        ----------
        table : Table
            The table.
        column : str or None
            The column that the section names.
        used_columns : set of str
            Columns that say something else, such as the images' names.

        Raises
        ------
        AnchorageError
            MANIFEST_WRONG: the column that was asked for is not there.
        """
        label_column = table.column(column, LABEL_COLUMNS)
        rows = len(next(iter(table.columns.values())))
        return self.read(table.columns[label_column] if label_column else [""] * rows, table.file, "label")

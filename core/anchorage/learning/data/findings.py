"""Several findings per image: a column for each, a column that lists them, or folders that are called so."""

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import CLASSES_DIFFER, MANIFEST_WRONG
from anchorage.learning.data.labels import LABEL_COLUMNS, LabelReader, ReadLabels
from anchorage.learning.data.tables import Table

UNKNOWN, NEGATIVE, POSITIVE, UNCERTAIN = -1, 0, 1, 2
"""Entries of labels, int8 [n, L]."""
LISTING_COLUMNS = (*LABEL_COLUMNS, "labels", "findings", "finding labels", "finding_labels")
"""Names under which a column that lists findings is found, in this order, in any case."""
NO_FINDING = "no finding"
"""Stratum of labelled images without a positive finding."""

_CELLS = {"1": POSITIVE, "1.0": POSITIVE, "0": NEGATIVE, "0.0": NEGATIVE, "-1": UNCERTAIN, "-1.0": UNCERTAIN}
"""What cells of a column per finding say, as CheXpert publishes them."""
_SHOWN = 10


def rarest(labels: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return each image's stratum, int64 [n]: its positive finding that fewest of the images have, the first of equally rare ones; L where it
    has a label and no positive finding, -1 without a label.

    Splits that keep the shares of these even keep those of rare findings even, of which a part would else get none.

    Parameters
    ----------
    labels : ndarray of int8, shape [n, L]
        Entries.
    """
    positive = labels == POSITIVE
    count, outputs = positive.sum(0), labels.shape[1]
    cost = np.where(positive, count, len(labels) + 1)
    strata = np.where(positive.any(1), cost.argmin(1), outputs)
    return np.where((labels >= 0).any(1), strata, -1).astype(np.int64)


class SiteFindings(LabelReader):
    """The federation's findings, and what a site writes of them; names are matched in any case.

    A finding that a site does not tell of is unknown there, and never negative: one without a column, and, of a column that lists findings, one
    that no row names, unless `labelColumns` says that the column tells of it.

    Parameters
    ----------
    names : tuple of str
        The findings, in the order of the model's outputs.
    class_map : mapping of str to str
        Local name to finding; a name that it lacks is the finding of the same name.
    unknown : str
        What becomes of an image with a word that is no finding: all are refused, it alone is left out, or it has no label.

    Raises
    ------
    AnchorageError
        CLASSES_DIFFER: `class_map` leads to a finding that the federation has not.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        class_map: Mapping[str, str],
        unknown: Literal["Refuse", "Skip", "Unlabelled"] = "Refuse",
    ) -> None:
        self._names, self._unknown = names, unknown
        positions = {name.casefold(): place for place, name in enumerate(names)}
        if astray := [name for name in class_map.values() if name.casefold() not in positions]:
            raise AnchorageError(
                CLASSES_DIFFER,
                f"classMap leads to {', '.join(astray[:_SHOWN])}; the federation has {self._known_names()}",
            )
        self._position = positions | {local.casefold(): positions[name.casefold()] for local, name in class_map.items()}
        self._columns: tuple[str, ...] = ()
        self._separator, self._none, self._blank = "|", frozenset({NO_FINDING}), UNKNOWN

    def reading(self, section: DataSection) -> LabelReader:
        """Take the section's columns, separator, and what its words and empty cells mean."""
        self._columns, self._separator = section.label_columns, section.label_separator
        self._none = frozenset(word.casefold() for word in section.no_finding)
        self._blank = NEGATIVE if section.blank == "Negative" else UNKNOWN
        return self

    def read(self, names: Sequence[str], place: Path, kind: str) -> ReadLabels:
        """Turn cells that list findings, such as ``Effusion|Mass``, into labels, int8 [n, L]; a folder's name is read as such a cell.

        Findings that no cell names are unknown, see the class.

        Raises
        ------
        AnchorageError
            CLASSES_DIFFER: a word is no finding, and such words are refused.
        """
        labels = np.full((len(names), len(self._names)), UNKNOWN, np.int8)
        words = {name: [word.strip() for word in name.split(self._separator) if word.strip()] for name in set(names)}
        strange = {
            name: astray
            for name, name_words in words.items()
            if (astray := [word for word in name_words if word.casefold() not in self._position.keys() | self._none])
        }
        counts = Counter(word for name in names for word in strange.get(name, ()))
        if counts and self._unknown == "Refuse":
            self._refuse(place, kind, counts)
        named = {
            self._position[word.casefold()]
            for name_words in words.values()
            for word in name_words
            if self._is_one(word)
        }
        answered = sorted(named | {self._place_of(column) for column in self._columns})
        for row, name in enumerate(names):
            if name and name not in strange:
                labels[row, answered] = NEGATIVE
                labels[row, [self._position[word.casefold()] for word in words[name] if self._is_one(word)]] = POSITIVE
            elif not name and kind != "folder":
                labels[row, answered] = self._blank
        if self._unknown == "Unlabelled":
            return self._labels(labels)
        detail = (
            'the {} "{}" has "{}", which is no finding: mend it, or name its finding in classMap, or it in noFinding'
        )
        return self._labels(
            labels,
            {
                row: ("LabelOutsideClasses", detail.format(kind, name[:40], strange[name][0][:40]))
                for row, name in enumerate(names)
                if name in strange
            },
        )

    def read_table(self, table: Table, column: str | None, used_columns: set[str]) -> ReadLabels:
        """Read the columns of the findings, else a column that lists them: the one asked for, or one of `LISTING_COLUMNS`.

        Raises
        ------
        AnchorageError
            As `read`, and MANIFEST_WRONG: a column that was asked for is not there.
        """
        if column is None:
            columns = [table.column(name, ()) or name for name in self._columns]
            columns = columns or [name for name in table.columns if name not in used_columns and self._is_one(name)]
            if columns:
                return self._by_column(table, columns)
        label_column = table.column(column, LISTING_COLUMNS)
        rows = len(next(iter(table.columns.values())))
        return self.read(table.columns[label_column] if label_column else [""] * rows, table.file, "label")

    def _by_column(self, table: Table, columns: Sequence[str]) -> ReadLabels:
        """Read a column per finding: 1, 0, -1 for uncertain, or nothing."""
        labels = np.full((len(table.columns[columns[0]]), len(self._names)), UNKNOWN, np.int8)
        wrong: dict[int, tuple[str, str]] = {}
        of_column: dict[int, str] = {}
        for name in columns:
            place = self._place_of(name)
            if (other := of_column.setdefault(place, name)) != name:
                detail = f"{table.file} has the columns {other} and {name} of the finding {self._names[place]}"
                raise AnchorageError(MANIFEST_WRONG, f"{detail}; name one of them in labelColumns")
            for row, cell in enumerate(table.columns[name]):
                if (value := _CELLS.get(cell) if cell else self._blank) is not None:
                    labels[row, place] = value
                elif self._unknown != "Unlabelled":
                    due = "1, 0, -1 for uncertain, or nothing is read"
                    wrong[row] = ("LabelUnreadable", f'the column "{name[:40]}" has "{cell[:40]}": {due}')
        return self._labels(labels, wrong)

    def _labels(self, labels: NDArray[np.int8], wrong: dict[int, tuple[str, str]] | None = None) -> ReadLabels:
        return ReadLabels(labels, rarest(labels), (*self._names, NO_FINDING), wrong or {}, self._names)

    def _is_one(self, name: str) -> bool:
        return name.casefold() in self._position

    def _place_of(self, column: str) -> int:
        if not self._is_one(column):
            message = f"labelColumns has {column[:40]}, which is no finding of the federation, which has {self._known_names()}"
            raise AnchorageError(CLASSES_DIFFER, f"{message}; name its finding in classMap, or leave it out")
        return self._position[column.casefold()]

    def _refuse(self, place: Path, kind: str, counts: Mapping[str, int]) -> None:
        shown = list(counts)[:_SHOWN]
        counted = ", ".join(f'"{word[:40]}" ({counts[word]} images)' for word in shown)
        more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
        name_by_key = {name.casefold(): name for name in reversed(self._names)}
        near = {word: get_close_matches(word.casefold(), name_by_key, n=1) for word in shown}
        entries = ", ".join(
            f"{word[:40]!r}: {name_by_key[near[word][0]] if near[word] else 'FINDING'}" for word in shown
        )
        them = "folders" if kind == "folder" else "labels"
        raise AnchorageError(
            CLASSES_DIFFER,
            f"{place}: found in {them} the words {counted}{more}, no findings of the federation, which has {self._known_names()}; say which finding "
            f"each is, such as classMap: {{{entries}}}, or name those that do not count in noFinding",
        )

    def _known_names(self) -> str:
        more = f" and {len(self._names) - _SHOWN} more" if len(self._names) > _SHOWN else ""
        return ", ".join(self._names[:_SHOWN]) + more

"""What a site calls the federation's classes: its folders, labels and columns are matched by name, never by their order."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import CLASSES_DIFFER
from anchorage.learning.data.label_kinds import SEVERAL, refuse_masks, refuse_several, several_findings
from anchorage.learning.data.labels import LABEL_COLUMNS, LabelReader, ReadLabels
from anchorage.learning.data.tables import Table

_SHOWN = 10
_NUMBERS = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}


class SiteClasses(LabelReader):
    """The federation's classes, and the names that a site has for them.

    Parameters
    ----------
    names : tuple of str
        The federation's classes, in the order of the model's outputs.
    class_map : mapping of str to str
        Local name to class; a name that it lacks is the class of the same name.
    unknown : str
        What becomes of an image whose name is no class: all are refused, it alone is left out, or it has no label.

    Raises
    ------
    AnchorageError
        CLASSES_DIFFER: `class_map` leads to a class that the federation has not.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        class_map: Mapping[str, str],
        unknown: Literal["Refuse", "Skip", "Unlabelled"] = "Refuse",
    ) -> None:
        self.names, self._unknown = names, unknown
        position = {_normal(name): place for place, name in enumerate(names)}
        if astray := [name for name in class_map.values() if _normal(name) not in position]:
            message = f"classMap leads to {', '.join(astray[:_SHOWN])}; the federation has the classes {self._names()}"
            redacted = (
                f"classMap leads to {len(astray)} names that are no class of the federation, which has {self._names()}"
            )
            raise AnchorageError(CLASSES_DIFFER, message, redacted=redacted)
        self._position = position | {_normal(local): position[_normal(name)] for local, name in class_map.items()}

    def position(self, name: str) -> int:
        """Return the output that a local name stands for, -1 where it is no class."""
        return self._position.get(_normal(name), -1)

    def read(self, names: Sequence[str], place: Path, kind: str) -> ReadLabels:
        """Turn the local names of images into classes, int64 [n].

        Parameters
        ----------
        names : sequence of str
            One per image, empty where it has no label.
        place : Path
            Folder or table, for messages.
        kind : str
            What the names are: ``folder`` or ``label``.

        Raises
        ------
        AnchorageError
            CLASSES_DIFFER: a name is no class, and such names are refused. TASK_UNSUPPORTED: labels name several findings, and are
            refused, or folders are those of images and masks.
        """
        labels = np.array([self.position(name) if name else -1 for name in names], dtype=np.int64)
        unknown = {row: name for row, name in enumerate(names) if name and labels[row] < 0}
        if kind == "folder":
            refuse_masks(place, unknown.values())
        if self._unknown == "Unlabelled":
            return self._labels(labels)
        counts = Counter(unknown.values())
        several = {name: counts[name] for name in several_findings(counts, {*names, *self._position})}
        if self._unknown == "Refuse":
            refuse_several(
                str(place), several, "give each image one label, or leave these images out (onBadImage: Skip)"
            )
            self.refuse(place, kind, counts)
        detail = 'the {} "{}" is no class: mend it, or name its class in classMap'
        wrong = {
            row: ("SeveralFindings", f'"{name[:40]}": {SEVERAL}')
            if name in several
            else ("LabelOutsideClasses", detail.format(kind, name[:40]))
            for row, name in unknown.items()
        }
        return self._labels(labels, wrong)

    def read_table(self, table: Table, column: str | None, used_columns: set[str]) -> ReadLabels:
        """Find the labels in the column asked for, in the 0/1 columns named as classes, or in a usual column.

        Raises
        ------
        AnchorageError
            As `read`, and CLASSES_DIFFER: a column of zeros and ones is no class.
        """
        flags = [name for name, cells in table.columns.items() if name not in used_columns and _holds_flags(cells)]
        named = [name for name in flags if self.position(name) >= 0]
        if column is None and len(named) > 1:
            return self._one_hot(table, named, [name for name in flags if name not in named])
        if len(flags) > 1 and not table.column(column, LABEL_COLUMNS):
            others = [name for name in flags if name not in named]
            self.refuse(table.file, "column", {name: len(_ones(table, name)) for name in others})
        return super().read_table(table, column, used_columns)

    def _one_hot(self, table: Table, columns: Sequence[str], others: Sequence[str]) -> ReadLabels:
        """Read the columns that are classes. Of the `others`, which hold zeros and ones as well, one is a class by another name where it says
        yes only of images of no class; what is told of images of any class, such as a sex, is none.
        """
        rows = zip(*(table.columns[name] for name in columns), strict=True)
        labels = np.full(len(table.columns[columns[0]]), -1, dtype=np.int64)
        wrong: dict[int, tuple[str, str]] = {}
        for row, cells in enumerate(rows):
            values = [_NUMBERS.get(cell) for cell in cells]
            if None not in values and values.count(1) == 1:
                labels[row] = self.position(columns[values.index(1)])
            elif any(cells):
                why = SEVERAL if values.count(1) > 1 else "needed is one 1"
                wrong[row] = ("LabelAmbiguous", f"the class columns hold {','.join(cells)[:60]}: {why}")
        of_a_class = set().union(*(_ones(table, name) for name in columns))
        missed = {name: ones for name in others if (ones := _ones(table, name)) and not ones & of_a_class}
        self.refuse(table.file, "column", {name: len(ones) for name, ones in missed.items()})
        return self._labels(labels, wrong)

    def _labels(self, labels: NDArray[np.int64], wrong: dict[int, tuple[str, str]] | None = None) -> ReadLabels:
        return ReadLabels(labels, labels, self.names, wrong or {})

    def refuse(self, place: Path, kind: str, counts: Mapping[str, int]) -> None:
        """Refuse names that are no classes, unless labels are not wanted; `counts` has the number of images of each.

        Raises
        ------
        AnchorageError
            CLASSES_DIFFER, with an entry of `classMap` for each name.
        """
        if not counts or self._unknown == "Unlabelled":
            return
        shown = list(counts)[:_SHOWN]
        counted = ", ".join(f'"{name[:40]}" ({counts[name]} images)' for name in shown)
        more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
        kinds, them = (kind, "it") if len(counts) == 1 else (f"{kind}s", "them")
        entries = ", ".join(f"{_quote(name[:40])}: {self._nearest(name)}" for name in shown)
        raise AnchorageError(
            CLASSES_DIFFER,
            f"{place}: found the {kinds} {counted}{more}, no class of the federation, which has {self._names()}; "
            f"say which class each is, such as classMap: {{{entries}}}, or rename {them}",
            redacted=f"{sum(counts.values())} images have {len(counts)} {kinds} that are no class of the federation, which has {self._names()}; "
            f"say in classMap which class each is, or rename {them}",
        )

    def _names(self) -> str:
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        return ", ".join(self.names[:_SHOWN]) + more

    def _nearest(self, name: str) -> str:
        """Guess the class that a local name means: one spelt much alike, else none, which nobody can copy by mistake."""
        folded = {known.casefold(): known for known in reversed(self.names)}
        near = get_close_matches(name.casefold(), folded, n=1)
        return _quote(folded[near[0]]) if near else "CLASS"


def _normal(name: str) -> str:
    """Return a name with its accents composed: file systems and spreadsheets write the same name in either form."""
    return unicodedata.normalize("NFC", name)


def _holds_flags(cells: Sequence[str]) -> bool:
    return any(cells) and _NUMBERS.keys() >= set(cells) - {""}


def _ones(table: Table, column: str) -> set[int]:
    return {row for row, cell in enumerate(table.columns[column]) if _NUMBERS.get(cell) == 1}


def _quote(name: str) -> str:
    """Write a name as YAML does."""
    return yaml.safe_dump(name, default_flow_style=True, width=1000, allow_unicode=True).removesuffix("\n...\n").strip()

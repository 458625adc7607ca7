"""What columns of a table say by their names: whose an image is, and whether it is for training or for a test."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import MANIFEST_WRONG, SPLIT_IGNORED
from anchorage.learning.data.listing import TEST_ROW, TRAINING_ROW, VALIDATION_ROW
from anchorage.learning.data.tables import Table

UNUSED = "None"
"""A section's word for: no column."""

_OWNERS = (
    "patient|patienten|subject|participant|proband|person|pid|mrn|medicalrecord",
    "case|study|exam|examination|accession",
    "lesion|nodule|tumou?r",
)
"""What images may have in common, from the widest to the narrowest."""
_NUMBER = "(?:instance)?(?:ids?|uid|nos?|nrs?|num|numbers?|key|code|index|identifier|hash|pseudonym)"
_MARKED = "(?:anon|anonymi[sz]ed|pseudo|deidentified)?"
_OWNER_PATTERNS = tuple(
    (
        re.compile(f"(?:{owner}|sub)(?:{_NUMBER})?[0-9]+[a-z]?"),
        re.compile(f"((?:{owner}|sub)[ _-]?(?:{_NUMBER})?[ _-]?[0-9]+)[ _-]+[^ _.-]", re.IGNORECASE),
    )
    for owner in _OWNERS
)
"""How folders are called, without blanks and dashes, and how names of files begin, of each kind of owner."""
_ANY_OWNER = re.compile("|".join((*_OWNERS, "sub")), re.IGNORECASE)
_ALIKE = re.compile("patient|subject|participant|proband|mrn|lesion|case|study")
_FACT = re.compile(
    "age|sex|gender|birth|date|time|weight|height|race|ethnic|status|type|diagnos|position|orientation|history|count|desc|size|site|comment|class|label|finding"
)
"""What a column tells of a patient or study that is none of its names."""
_SHOWN = 3

_FLAGS: Mapping[str, int] = {
    **dict.fromkeys(("train", "istrain", "istraining", "trainset"), TRAINING_ROW),
    **dict.fromkeys(("val", "isval", "validation", "isvalidation", "valset"), VALIDATION_ROW),
    **dict.fromkeys(("test", "istest", "testing", "testset", "holdout", "isholdout", "heldout"), TEST_ROW),
}
"""Columns that say yes of the images of one part."""
_YES, _NO = frozenset({"1", "1.0", "true", "yes", "y"}), frozenset({"0", "0.0", "false", "no", "n", ""})
_WORDS: Mapping[str, int] = {
    **dict.fromkeys(("train", "training", "trn"), TRAINING_ROW),
    **dict.fromkeys(("val", "valid", "validate", "validation", "dev", "development", "tune"), VALIDATION_ROW),
    **dict.fromkeys(("test", "testing", "tst", "holdout", "heldout", "eval", "evaluation"), TEST_ROW),
}


def group_column(table: Table, asked: str | None, used_columns: Collection[str]) -> str | None:
    """Return the column that names the patient, study or lesion of each image: as asked, else by a usual name, the widest first.

    Parameters
    ----------
    table : Table
        The table.
    asked : str or None
        What the section says; `UNUSED`: no column.
    used_columns : collection of str
        Columns that say something else.

    Raises
    ------
    AnchorageError
        MANIFEST_WRONG: the column that was asked for is not there.
    """
    if asked is not None:
        return None if asked == UNUSED else table.column(asked, ())
    for owner in _OWNERS:
        for name, cells in _free(table, used_columns):
            numbered = re.fullmatch(f"{_MARKED}(?:{owner})s?{_NUMBER}", _plain(name))
            # a column "case" may hold "case" and "control", a column "study" the study's name
            named = re.fullmatch(f"(?:{owner})s?", _plain(name)) and len(set(cells)) > 2
            if numbered or named:
                return name
    return None


def owner_remarks(table: Table, group: str | None, asked: str | None, used_columns: Collection[str]) -> Iterator[str]:
    """Yield what people should know of a table's patients: a column that is not used, names that are perhaps one.

    Parameters
    ----------
    table, asked, taken
        As of `group_column`.
    group : str or None
        What it returned.
    """
    if group is None and asked is None:
        alike = (
            name
            for name, cells in _free(table, used_columns)
            if _ALIKE.search(_plain(name)) and not _FACT.search(_plain(name)) and len(set(cells)) > 1
        )
        if name := next(alike, None):
            yield (
                f'the column "{name}" looks like a patient id and is not used, so images of one patient may be in training and in the test '
                f"part; set groupBy: {name}, or groupBy: {UNUSED}"
            )
    if group is not None:
        ids = sorted(set(table.columns[group]) - {""})
        spelt = Counter(map(_loosely, ids))
        if twice := [one for one in ids if spelt[_loosely(one)] > 1]:
            yield (
                f'the column "{group}" has {len(twice)} names that differ only by leading zeros, blanks or case: each counts by itself'
            )


def split_column(table: Table, used_columns: Collection[str]) -> str | None:
    """Return the column by which some rows are for validation or test, and others for training; None without one."""
    for name, cells in _free(table, used_columns):
        if len(set(_rows(name, cells)) - {None}) > 1 and None not in _rows(name, [cell for cell in cells if cell]):
            return name
    return None


def _rows(name: str, cells: Sequence[str]) -> list[int | None]:
    """Return what each cell of a column says that its row is for; None where it says nothing of that."""
    words = [cell.casefold() for cell in cells]
    flagged = _FLAGS.get(_plain(name))
    if flagged is not None and set(words) <= _YES | _NO:
        other = TEST_ROW if flagged == TRAINING_ROW else TRAINING_ROW
        return [flagged if word in _YES else other for word in words]
    return [_WORDS.get(word) for word in words]


def split_of(table: Table, asked: str | None, used_columns: Collection[str]) -> NDArray[np.int8] | None:
    """Return which rows are for training, validation and test by the column that the section names, int8 [n]; None without one.

    Raises
    ------
    AnchorageError
        MANIFEST_WRONG: there is no such column, or it says something else. SPLIT_IGNORED: a column has test or validation rows, and the section
        does not say whether they count.
    """
    if asked is None:
        if name := split_column(table, used_columns):
            rows = _rows(name, table.columns[name])
            held_out = sum(row not in (None, TRAINING_ROW) for row in rows)
            counted = (
                f'{table.file}: by the column "{name}" {held_out} of {len(rows)} images are for validation or test'
            )
            raise AnchorageError(
                SPLIT_IGNORED,
                f"{counted}; set splitColumn: {name} to keep to that, or splitColumn: {UNUSED}",
                redacted=f"by a column of the table {held_out} of {len(rows)} images are for validation or test; name it as splitColumn to keep to "
                f"that, or set splitColumn: {UNUSED}",
            )
        return None
    if asked == UNUSED:
        return None
    column = table.column(asked, ()) or asked
    rows = _rows(column, table.columns[column])
    if None in rows:
        cell = table.columns[column][rows.index(None)]
        message = f'{table.file}: the column "{column}" has the value "{cell}"; allowed are {", ".join(_WORDS)}'
        redacted = f"the column that splitColumn names has {rows.count(None)} other values than {', '.join(_WORDS)}"
        raise AnchorageError(MANIFEST_WRONG, message, redacted=redacted)
    return np.array(rows, np.int8)


def owner_in_path(path: str) -> str | None:
    """Return whose an image is by its path: the folder, or the beginning of the file's name, that is called as a patient, study or lesion with a
    number, such as ``patient 07/left.png`` or ``sub-07_left.png``; the widest, else None.
    """
    folders, _, file = path.rpartition("/")
    owners = _owners_of(folders)
    if _ANY_OWNER.match(file):
        for place, (_, beginning) in enumerate(_OWNER_PATTERNS):
            if owners[place] is None and (match := beginning.match(file)):
                owners = (*owners[:place], match[1], *owners[place + 1 :])
    return next((owner for owner in owners if owner is not None), None)


@lru_cache(maxsize=4096)  # images share their folders
def _owners_of(folders: str) -> tuple[str | None, ...]:
    """Return the folder that names an owner of each kind."""
    names = [(folder, _plain(folder)) for folder in folders.split("/")]
    return tuple(
        next((folder for folder, plain in names if called.fullmatch(plain)), None) for called, _ in _OWNER_PATTERNS
    )


def divided_paths(paths: Sequence[str]) -> Iterator[str]:
    """Yield what people should know of images that lie in folders for training and for a test, of which the folders are not taken for that."""
    parts = [_parts_of(path.rpartition("/")[0]) for path in paths]
    held_out = sum(bool(row_codes - {TRAINING_ROW}) for row_codes in parts)
    if held_out and any(TRAINING_ROW in row_codes for row_codes in parts):
        yield (
            f"{held_out} of {len(paths)} images lie in folders for validation or test, beside others for training: all are "
            "used alike; name the folder of the training images as `path`, or divide a table by splitColumn"
        )


@lru_cache(maxsize=4096)
def _parts_of(folders: str) -> frozenset[int]:
    return frozenset(_WORDS[word] for folder in folders.split("/") if (word := _plain(folder)) in _WORDS)


def _free(table: Table, used_columns: Collection[str]) -> Iterator[tuple[str, Sequence[str]]]:
    return ((name, cells) for name, cells in table.columns.items() if name not in used_columns)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _loosely(name: str) -> str:
    return _plain(name).lstrip("0")

"""CSV files as they come out of spreadsheets and challenges."""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING, MANIFEST_WRONG
from anchorage.api.regular_files import read_regular

IMAGE_COLUMNS = ("image", "image_id", "id", "isic_id", "file", "filename", "path")
"""Names under which an image column is found, in this order, in any case."""
_SEPARATOR_LINE = re.compile('"?sep=.?"?')
"""A first line by which spreadsheets are told how cells are separated."""


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file with a header.

    Parameters
    ----------
    file : Path
        Where it was read.
    columns : mapping of str to list of str
        Cells without surrounding blanks, row by row; a missing cell is empty.
    """

    file: Path
    columns: dict[str, list[str]]

    def find(self, candidates: Sequence[str]) -> str | None:
        """Return the first of some column names that is there, in any case."""
        known = {name.lower(): name for name in reversed(self.columns)}
        return next((known[name] for name in candidates if name in known), None)

    def column(self, asked: str | None, candidates: Sequence[str]) -> str | None:
        """Return the column that was asked for, else the first candidate that is there.

        Raises
        ------
        AnchorageError
            MANIFEST_WRONG: the column that was asked for is not there.
        """
        if asked is not None and asked not in self.columns:
            raise AnchorageError(
                MANIFEST_WRONG,
                f'{self.file} has no column "{asked}"; it has {", ".join(list(self.columns)[:20])}',
                redacted=f"the table has {len(self.columns)} columns, and not one that the data section names",
            )
        return asked or self.find(candidates)

    def image_column(self, asked: str | None) -> str:
        """Return the column of image names: as asked, by a usual name, or the first."""
        return self.column(asked, IMAGE_COLUMNS) or next(iter(self.columns))


def read_table(file: Path) -> Table:
    """Read a CSV file whose cells are separated by commas, semicolons or tabs.

    Raises
    ------
    AnchorageError
        DATA_MISSING: it cannot be read. MANIFEST_WRONG: it is no CSV file, in UTF-8 or as "Unicode text", with a header of different names.
    """
    try:
        text = _text(read_regular(file))
        first, _, rest = text.partition("\n")
        text = rest if _SEPARATOR_LINE.fullmatch(first.strip()) else text
        header = text.lstrip("\r\n").split("\n", 1)[0]
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count), strict=True))
    except OSError as error:
        detail = f"cannot be read ({error.strerror}); check path and manifest"
        raise AnchorageError(DATA_MISSING, f"{file} {detail}", redacted=f"a table {detail}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        detail = "is no CSV file in UTF-8"
        raise AnchorageError(MANIFEST_WRONG, f"{file} {detail}: {error}", redacted=f"a table {detail}") from error
    return Table(file, _columns(file, [row for row in rows if any(cell.strip() for cell in row)]))


def _text(content: bytes) -> str:
    """Decode a file as spreadsheets write it: UTF-8 with or without a mark in front, or UTF-16 with one."""
    utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if utf_16 else "utf-8-sig")


def _columns(file: Path, rows: list[list[str]]) -> dict[str, list[str]]:
    """Return the cells under each name of the first row; columns without a name, such as empty ones at the end, are left out."""
    names = [name.strip() for name in rows[0]] if rows else []
    places = {place: name for place, name in enumerate(names) if name}
    if not places:
        detail = "is empty; its first line names the columns"
        raise AnchorageError(MANIFEST_WRONG, f"{file} {detail}", redacted=f"a table {detail}")
    if twice := [name for name, count in Counter(places.values()).items() if count > 1]:
        raise AnchorageError(
            MANIFEST_WRONG,
            f'{file} names the column "{twice[0]}" twice; its first line names the columns',
            redacted="a table names a column twice; its first line names the columns",
        )
    for number, row in enumerate(rows[1:], start=2):
        if any(cell.strip() for cell in row[len(names) :]):
            detail = f"row {number} has {len(row)} cells under {len(names)} columns; quote cells with commas"
            raise AnchorageError(MANIFEST_WRONG, f"{file}: {detail}", redacted=f"a table's {detail}")
    return {
        name: [row[place].strip() if place < len(row) else "" for row in rows[1:]] for place, name in places.items()
    }

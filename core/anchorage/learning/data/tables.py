"""CSV files as they come out of spreadsheets and challenges."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING, MANIFEST_WRONG

IMAGE_COLUMNS = ("image", "image_id", "id", "isic_id", "file", "filename", "path")
"""Names under which an image column is found, in this order, in any case."""


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
                MANIFEST_WRONG, f'{self.file} has no column "{asked}"; it has {", ".join(list(self.columns)[:20])}'
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
        DATA_MISSING: it cannot be read. MANIFEST_WRONG: it is no UTF-8 CSV file with a header of different names.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
        header = text.split("\n", 1)[0]
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count), strict=True))
    except OSError as error:
        raise AnchorageError(
            DATA_MISSING, f"{file} cannot be read ({error.strerror}); check path and manifest"
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise AnchorageError(MANIFEST_WRONG, f"{file} is no CSV file in UTF-8: {error}") from error
    names = [name.strip() for name in rows[0]] if rows else []
    if not any(names):
        raise AnchorageError(MANIFEST_WRONG, f"{file} is empty; its first line names the columns")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise AnchorageError(
            MANIFEST_WRONG, f'{file} names the column "{twice}" twice; its first line names the columns'
        )
    body = [row for row in rows[1:] if any(cell.strip() for cell in row)]
    for number, row in enumerate(body, start=2):
        if len(row) > len(names):
            raise AnchorageError(
                MANIFEST_WRONG,
                f"{file}: row {number} has {len(row)} cells under {len(names)} columns; quote cells with commas",
            )
    columns = {
        name: [row[place].strip() if place < len(row) else "" for row in body] for place, name in enumerate(names)
    }
    return Table(file, columns)

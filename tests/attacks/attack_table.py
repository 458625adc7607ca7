"""The threat table of README.md."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent / "README.md"
HEADING = "## Threats that are played"


@dataclass(frozen=True)
class Row:
    """Who tries what, what is expected, and the script that plays it."""

    who: str
    attempt: str
    expected: str
    against: str
    script: str


def rows() -> list[Row]:
    """Return the rows of the table."""
    text = PAGE.read_text().partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ") and line.endswith("` |")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
    return [Row(*row[:-1], row[-1].strip("`")) for row in cells]

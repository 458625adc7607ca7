"""The page of the catalogue of errors: docs/errors.md."""

from collections.abc import Mapping
from pathlib import Path

from anchorage.api.errors import CATALOGUE, Failure

PARTS = (
    ("ANC-10", "Files and documents"),
    ("ANC-11", "Rules across documents, methods"),
    ("ANC-12", "Images and labels"),
    ("ANC-13", "Models and learning"),
    ("ANC-20", "Identity"),
    ("ANC-21", "Transfer"),
    ("ANC-22", "Agent"),
    ("ANC-30", "Rounds"),
    ("ANC-31", "Storage"),
    ("ANC-40", "Tracking"),
    ("ANC-50", "Command line"),
    ("ANC-51", "Command line on a cluster"),
)
"""Ranges of codes and what they are about."""

PAGE = Path("docs/errors.md")

_HEAD = """# Errors

Every failure that a user can meet has a code whose meaning never changes. A process that ends with it prints the line `ANC-1001 FileUnreadable: …`
and ends with the exit status that stands in brackets; in a federation's status the name is a condition's reason. `fedctl explain ANC-1001` prints
an entry. This page is generated from the catalogue (`anchorage.api.errors`) by `make generate`.
"""


def page() -> str:
    """Return the page, with a heading for each code."""
    entries = [CATALOGUE[code] for code in sorted(CATALOGUE)]
    parts = [_HEAD]
    for prefix, title in PARTS:
        if part := [_entry(entry) for entry in entries if entry.code.startswith(prefix)]:
            parts += [f"## {title}\n", *part]
    return "\n".join(parts)


def files(_root: Path) -> Mapping[Path, str | None]:
    """Return the page of a checkout."""
    return {PAGE: page()}


def _entry(entry: Failure) -> str:
    return f"### {entry.code}\n\n**{entry.reason}** ({entry.exit_code}). {entry.title}\n\n{entry.remedy}\n"

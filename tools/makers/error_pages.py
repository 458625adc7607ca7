"""One page per entry of the catalogue of errors, and an index: docs/errors."""

from collections.abc import Mapping, Sequence
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

FOLDER = Path("docs/errors")
INDEX = "README.md"


def pages() -> Mapping[str, str]:
    """Return every page by its file name."""
    entries = [CATALOGUE[code] for code in sorted(CATALOGUE)]
    return {INDEX: _index(entries)} | {f"{entry.code}.md": entry.page() for entry in entries}


def files(root: Path) -> Mapping[Path, str | None]:
    """Return the pages of a checkout; a page whose code is no more must go."""
    old = {FOLDER / path.name: None for path in (root / FOLDER).glob("*.md")}
    return {**old, **{FOLDER / name: text for name, text in pages().items()}}


def _index(entries: Sequence[Failure]) -> str:
    lines = [
        "# Errors",
        "",
        "Every failure that a user can encounter has a code whose meaning never changes. These pages are generated from the",
        "catalogue (`anchorage.api.errors`) by `make generate`.",
    ]
    for prefix, title in PARTS:
        if part := [entry for entry in entries if entry.code.startswith(prefix)]:
            lines += [
                "",
                f"## {title}",
                "",
                "| code | reason | what went wrong | exit status |",
                "| --- | --- | --- | --- |",
            ]
            lines += [f"| [{e.code}]({e.code}.md) | {e.reason} | {e.title} | {e.exit_code} |" for e in part]
    return "\n".join(lines) + "\n"

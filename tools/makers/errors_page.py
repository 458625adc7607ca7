"""The page of the catalogue of errors: docs/errors.md."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mode

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

A failure has a code whose meaning never changes. The process prints `ANC-1001 FileUnreadable: …` and ends with the exit status in brackets, or else
the section's; in a federation's status the name is a condition's reason. A run that is started again resumes at the last committed round.
`fedctl explain ANC-1001` prints an entry. Generated from `anchorage.api.errors` by `make generate`.
"""


def page() -> str:
    """Return the page, with a heading for each code."""
    parts = [_HEAD]
    for prefix, title in PARTS:
        entries = [CATALOGUE[code] for code in sorted(CATALOGUE) if code.startswith(prefix)]
        usual = mode(entry.exit_code for entry in entries)
        parts += [f"## {title}\n", f"Exit status {usual}.\n", *(_entry(entry, usual) for entry in entries)]
    return "\n".join(parts)


def files(_root: Path) -> Mapping[Path, str | None]:
    """Return the page of a checkout."""
    return {PAGE: page()}


def _entry(entry: Failure, usual: int) -> str:
    status = "" if entry.exit_code == usual else f" ({entry.exit_code})"
    return f"### {entry.code}\n\n**{entry.reason}**{status}. {entry.title}\n\n{entry.remedy}\n"

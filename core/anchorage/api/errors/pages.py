"""Writes one page per entry of the catalogue, and an index: ``python -m anchorage.api.errors.pages DIR [--check]``."""

import argparse
import sys
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

INDEX = "README.md"


def pages() -> Mapping[str, str]:
    """Return every page by its file name."""
    entries = [CATALOGUE[code] for code in sorted(CATALOGUE)]
    return {INDEX: _index(entries)} | {f"{entry.code}.md": _page(entry) for entry in entries}


def drift(folder: Path) -> list[str]:
    """Return the file names that are missing, different or left over in a folder."""
    wanted = pages()
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def write(folder: Path) -> None:
    """Write every page into a folder and remove pages of codes that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for path in folder.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


def _page(entry: Failure) -> str:
    return (
        f"# {entry.code} {entry.reason}\n\n{entry.title}\n\n## What to do\n\n{entry.remedy}\n\n"
        f"## Where it appears\n\nAs the line `{entry.code} {entry.reason}: …` and exit status {entry.exit_code} of the "
        f"process that ends with it, and as the reason `{entry.reason}` in a federation's status.\n"
    )


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with ``--check`` compare them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m anchorage.api.errors.pages", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the pages, such as docs/errors")
    parser.add_argument("--check", action="store_true", help="exit 1 where the folder differs, write nothing")
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.folder)
        return 0
    differing = drift(options.folder)
    for name in differing:
        sys.stderr.write(f"{options.folder / name} is out of step with the catalogue; run `make generate`\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes the pages and values that are made from the source: ``python tools/make_files.py [--check]``.

These are docs/errors.md, docs/conditions.md, docs/methods, the tables of docs/federation.md, the CustomResourceDefinitions (crds, the chart's
templates of them, and their digests for `fedctl doctor`), and values, schema and README table of each chart.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from makers import charts, conditions_page, crd, errors_page, field_reference, method_pages

MAKERS = tuple(m.files for m in (errors_page, field_reference, conditions_page, method_pages, crd, charts))
ROOT = Path(__file__).resolve().parents[1]


def wanted(root: Path) -> Mapping[Path, str | None]:
    """Return every made file of a checkout with its text; None is a file that must not be there any more.

    Raises
    ------
    ValueError, OSError
        A page of which only a part is made cannot be read, or lacks the marks of that part.
    """
    return {root / path: text for maker in MAKERS for path, text in maker(root).items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with ``--check`` compare them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python tools/make_files.py", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    parser.add_argument("--check", action="store_true", help="exit 1 where a file differs, write nothing")
    options = parser.parse_args(arguments)
    try:
        files = wanted(options.root)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"the files cannot be made: {error}\n")
        return 2
    stale = [path for path, text in files.items() if (path.read_text("utf-8") if path.is_file() else None) != text]
    for path in stale:
        text = files[path]
        if options.check:
            sys.stderr.write(f"{path} is not in step with its source; run `make generate`\n")
        elif text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())

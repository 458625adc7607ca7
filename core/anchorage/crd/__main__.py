"""Writes the CustomResourceDefinitions: ``python -m anchorage.crd crds``, and with ``--chart`` as templates of a Helm chart."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from anchorage.crd.definitions import files, templates


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with ``--check`` compare them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m anchorage.crd", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the files go, such as crds or charts/anchorage/templates")
    parser.add_argument("--chart", action="store_true", help="write templates of a Helm chart")
    parser.add_argument("--check", action="store_true", help="exit 1 where a file differs, write nothing")
    options = parser.parse_args(arguments)
    stale = []
    try:
        for name, text in (templates() if options.chart else files()).items():
            path = options.folder / name
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(str(path))
                if not options.check:
                    path.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"the definitions cannot be written: {error}\n")
        return 2
    if stale and options.check:
        sys.stderr.write(f"{', '.join(stale)}: not what the spec says; run `make generate`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

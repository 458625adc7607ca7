"""Generates the documentation and schema of the charts' values: ``python charts/values [--check]``.

For each chart the models beside this file give ``values.schema.json`` (what Helm refuses), ``values.yaml`` (the defaults, with comments) and the
table in ``README.md``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import anchorage_chart
import silo_agent_chart
from kubernetes_parts import Values
from schema import schema_text
from table import replace_table
from values_yaml import values_text

CHARTS = Path(__file__).resolve().parent.parent
MODELS: dict[str, type[Values]] = {
    "anchorage": anchorage_chart.ChartValues,
    "silo-agent": silo_agent_chart.ChartValues,
}


def wanted() -> dict[Path, str]:
    """Return every generated file with its text."""
    files: dict[Path, str] = {}
    for name, model in MODELS.items():
        folder = CHARTS / name
        files[folder / "values.schema.json"] = schema_text(model)
        files[folder / "values.yaml"] = values_text(model)
        readme = folder / "README.md"
        files[readme] = replace_table(readme.read_text(encoding="utf-8"), model)
    return files


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with ``--check`` compare them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python charts/values", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 where a file differs, write nothing")
    options = parser.parse_args(arguments)
    files = wanted()
    if not options.check:
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
        return 0
    differing = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in differing:
        sys.stderr.write(f"{path} is out of step with charts/values; run `make generate`\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

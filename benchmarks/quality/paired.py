"""Differences between cells of a study, seed by seed and draw by draw.

python benchmarks/quality/paired.py --workdir DIR CELLS [CELLS ...]

DIR is the working folder of ``fedctl study``; CELLS a pattern of folder names, such as ``a-tenth*alone-Lda``, whose cells and seeds in their order
are draws of one row. The last model's figures on the test images, else the validation images; gains are those of the first row over the others.
"""

import argparse
import statistics
import sys
from pathlib import Path

from fedctl.research.results import SimulationFolder

METRICS = ("balanced_accuracy", "macro_auc")


def drawn(workdir: Path, pattern: str, metric: str) -> list[float]:
    """Return a row's values, by cell and seed."""
    values = []
    for cell in sorted(workdir.glob(pattern)):
        for result in SimulationFolder(cell).read_finished():
            last = result.rounds[-1]
            values.append((last.test["final"] if last.test else last.metrics)[metric])
    return values


def spread(values: list[float]) -> str:
    """Write mean ± standard deviation; a single value alone."""
    mean = statistics.mean(values)
    return f"{mean:.3f} ± {statistics.stdev(values):.3f}" if len(values) > 1 else f"{mean:.3f}"


def main() -> int:
    """Print a line per row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--workdir", type=Path, required=True, help="working folder of the study")
    parser.add_argument("cells", nargs="+", help="patterns of cells' names")
    arguments = parser.parse_args()
    for pattern in arguments.cells:
        results = []
        for metric in METRICS:
            first, values = (drawn(arguments.workdir, each, metric) for each in (arguments.cells[0], pattern))
            if not values:
                parser.error(f"no finished cell is called {pattern}")
            gains = [one - other for one, other in zip(first, values, strict=True)] if len(first) == len(values) else []
            results.append(f"{metric} {spread(values)}" + (f", gain {spread(gains)}" if gains else ""))
        print(f"{pattern} ({len(values)}): {'; '.join(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

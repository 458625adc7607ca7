"""Train the file that `fedctl init` writes, as it is written, on sets of images that it was not made for, and print what it is worth.

python benchmarks/quality/first_study.py --workdir DIR [--sets NAMES] [--labels all,some,server] [--seeds 3] [--weights DIR]

For each set (`first_sets.py`), for labels at all silos, at one of three, and at the server only, and for each seed: balanced accuracy on the
test images of the last round's model and of the best one by validation; of the labels alone, that is, of each labelled silo alone by the file
that `fedctl init` writes for it, or of the anchors alone; and the largest share of the test images that the last model gives one class. What was
played before is not played again. Real sets need ANCHORAGE_DATA. `--weights` is a folder of pretrained weights (`fedctl weights`), which the
file then begins with.
"""

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from first_sets import SILOS, WRITERS

from fedctl.anchors_alone import measure
from fedctl.init import InitRequest, begin_study
from fedctl.output import Format
from fedctl.research.simulation import SimulationRequest, simulate_federation

METRIC = "balanced_accuracy"
LABELS = ("all", "some", "server")


def main() -> int:
    """Play what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--workdir", type=Path, required=True, help="images, files and results")
    parser.add_argument("--sets", default=",".join(WRITERS), help="names of sets")
    parser.add_argument("--labels", default=",".join(LABELS), help="where the labels are")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--weights", type=Path, help="folder of pretrained weights to begin with")
    chosen = parser.parse_args()
    rows = []
    for name in chosen.sets.split(","):
        folder = chosen.workdir.resolve() / (f"{name}-pretrained" if chosen.weights else name)
        if not (folder / "server").exists():
            WRITERS[name](folder)
        if chosen.weights and not (folder / "weights").exists():
            (folder / "weights").symlink_to(chosen.weights.resolve())
        for labels in chosen.labels.split(","):
            rows.append(row_of(name, labels, list(played(folder, labels, chosen.seeds))))
            print(rows[-1], flush=True)
    print("\n" + "\n".join([*HEAD, *rows]))
    return 0


HEAD = (
    "| set | labels | last round | best round | labels alone | last - alone | last - best | most of one class |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


def row_of(name: str, labels: str, results: Sequence[Mapping[str, float]]) -> str:
    """Write the means over the seeds as a row of a table in Markdown."""
    last, best, alone, most = (mean(result[key] for result in results) for key in ("last", "best", "alone", "most"))
    cells = (f"{last:.3f}", f"{best:.3f}", f"{alone:.3f}", f"{last - alone:+.3f}", f"{last - best:+.3f}", f"{most:.0%}")
    return f"| {' | '.join((name, labels, *cells))} |"


def played(folder: Path, labels: str, seeds: int) -> Iterator[Mapping[str, float]]:
    """Yield the figures of each seed."""
    file = written(folder, labels, SILOS if labels == "all" else SILOS[:1] if labels == "some" else (), SILOS)
    alone = {} if labels == "server" else {silo: written(folder, f"{silo}-alone", (silo,), (silo,)) for silo in SILOS}
    used = {"all": SILOS, "some": SILOS[:1], "server": ()}[labels]
    for seed in range(1, seeds + 1):
        result = simulated(folder, file, seed)
        bounds = [simulated(folder, alone[silo], seed)["last"] for silo in used]
        yield {**result, "alone": max(bounds) if bounds else anchors_alone(folder, file, seed)}


def written(folder: Path, name: str, labelled: Sequence[str], silos: Sequence[str]) -> Path:
    """Have `fedctl init` write a file, and return it."""
    file = folder / f"{name}.yaml"
    if not file.exists():
        server = {"validation": folder / "server/validation", "test": folder / "server/test"}
        server |= {} if labelled else {"anchors": folder / "server/anchors"}
        folders = tuple(f"{silo}={folder / silo}" + ":labels" * (silo in labelled) for silo in silos)
        with contextlib.redirect_stdout(io.StringIO()):
            begin_study(InitRequest(file, (), server, folders))
    return file


def simulated(folder: Path, file: Path, seed: int) -> Mapping[str, float]:
    """Simulate the file with a seed, unless that was done, and return the figures of its last and best model."""
    result, work = folder / "results" / f"{file.stem}-{seed}.json", folder / "work" / f"{file.stem}-{seed}"
    if not result.exists():
        printed = io.StringIO()
        wanted = SimulationRequest(file, (f"spec.seed={seed}",), data_root=folder, tracking=False, at_once=1)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            simulate_federation(wanted, work, Format.JSON)
        summary = json.loads(printed.getvalue())
        card: dict[str, Any] = json.loads((work / "models" / str(seed) / "model-card.json").read_text())
        confusion = card["final"]["assessment"]["counts"]["confusion"]
        predicted = [sum(column) for column in zip(*confusion, strict=True)]
        figures = {
            "last": summary["last"][METRIC]["mean"],
            "best": summary["best"][METRIC]["mean"],
            "most": max(predicted) / sum(predicted),
        }
        result.parent.mkdir(exist_ok=True)
        result.write_text(json.dumps(figures))
    stored: Mapping[str, float] = json.loads(result.read_text())
    return stored


def anchors_alone(folder: Path, file: Path, seed: int) -> float:
    """Return the balanced accuracy of training on the anchors alone, which is measured unless it was."""
    result = folder / "results" / f"anchors-{seed}.json"
    if not result.exists():
        document = folder / "work" / f"anchors-{seed}.yaml"
        document.write_text(file.read_text().replace("\n  seed: 1\n", f"\n  seed: {seed}\n"))
        result.write_text(json.dumps(measure(document, folder)))
    return float(json.loads(result.read_text())[METRIC])


if __name__ == "__main__":
    sys.exit(main())

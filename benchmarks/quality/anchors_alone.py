"""Training on the server's labelled images alone: the lower bound of the methods of a study with labels at the server.

python benchmarks/quality/anchors_alone.py --workdir DIR --data-root DIR

DIR is the working folder of ``fedctl study``. For every finished seed of every method that trains at the server, the same model with the same seed
and the same server training is trained without any silo; what was measured stays in DIR/CELL/anchors-alone.json.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from anchorage.api.fact import Fact
from anchorage.api.federation import FederationSpec
from anchorage.learning import learners
from anchorage.learning.data import read
from anchorage.methods import resolve
from fedctl.anchors_alone import scored_part
from fedctl.research.results import SimulationFolder

CACHE_FILE = "anchors-alone.json"


def measure(spec: FederationSpec, root: Path, seed: int, device: str) -> dict[str, float]:
    """Return the metrics on the test images after as many rounds at the server as the federation has."""
    sections = spec.server_data
    report = learners.train_on_anchors_alone(
        model=spec.model_description,
        method=resolve(spec.method),
        seed=seed,
        anchors=read(sections["anchors"], root, spec.model_description, seed)[0],
        test=read(sections[scored_part(spec)], root, spec.model_description, seed)[0],
        rounds=spec.rounds,
        device=device,
    )
    return dict(report.metrics)


def measured(cell: Path, root: Path, device: str) -> dict[str, dict[str, float]]:
    """Return the metrics of every finished seed of a cell; empty where its server does not train."""
    folder = SimulationFolder(cell)
    spec = folder.study().federation.spec
    if spec.anchor_data is None or spec.evaluation is None or Fact.SERVER_TRAINING not in resolve(spec.method).facts():
        return {}
    cache = cell / CACHE_FILE
    scores: dict[str, dict[str, float]] = json.loads(cache.read_text()) if cache.exists() else {}
    for result in folder.read_finished():
        if str(result.seed) not in scores:
            scores[str(result.seed)] = measure(spec, root, result.seed, device)
            cache.write_text(json.dumps(scores, indent=1) + "\n")
    return scores


def main() -> int:
    """Measure what is missing and print a line per method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--workdir", type=Path, required=True, help="working folder of the study")
    parser.add_argument("--data-root", type=Path, required=True, help="folder that claims name folders of")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--metric", default="accuracy", help="what is printed")
    arguments = parser.parse_args()
    for cell in sorted(path for path in arguments.workdir.iterdir() if SimulationFolder(path).documents.exists()):
        values = [
            metrics[arguments.metric] for metrics in measured(cell, arguments.data_root, arguments.device).values()
        ]
        if values:
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            print(
                f"{cell.name}: {arguments.metric} {statistics.mean(values):.4f} ± {spread:.4f} ({len(values)} seeds)",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

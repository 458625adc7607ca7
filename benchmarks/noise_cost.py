"""What a hospital's relative noise costs a study: ``make bench-noise-cost ARGS="STUDY --data-root DIR --ratios 0 1 1.25 --json FILE"``.

Plays every cell of a file for ``fedctl study`` as ``fedctl simulate`` does, with each silo's learner behind the privacy learner of an agent whose
policy has `relativeNoise`, and prints the figures of the last model: on the test images, or the validation images where there are none. Every silo's
noise has a seed of its own, so that a row can be had again.
"""

import argparse
import json
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from anchorage.api.errors import AnchorageError
from anchorage.api.files import Study
from anchorage.api.run import RunDescription
from anchorage.api.single import read_document
from anchorage.engine.interfaces import SiloLearner
from anchorage.learning.learners import build_silo_learner
from anchorage.simulation import silos
from anchorage.simulation.images import DecodedImages
from anchorage.simulation.run import Simulation
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.privacy import PrivateLearner
from anchorage_silo.protection import Protection
from fedctl.research.study import StudyFile, cells_of


def figures(study: Study, data_root: Path, ratio: float, decoded: DecodedImages) -> Mapping[str, float]:
    """Return the last model's figures; none where the run failed."""
    seed = study.federation.spec.seed

    def build(*, run: RunDescription, silo: str, **options: Any) -> SiloLearner:
        learner = build_silo_learner(run=run, silo=silo, **options)
        down, up = Layout.from_json(run.down), Layout.from_json(run.up)
        noise_seed = zlib.crc32(f"{seed} {silo}".encode())
        return PrivateLearner(
            learner,
            down,
            up,
            Protection(clip_norm=None, noise_std=None, noise_ratio=ratio or None, noise_seed=noise_seed),
        )

    with (
        tempfile.TemporaryDirectory(prefix="anchorage-bench-") as folder,
        mock.patch.object(silos, "build_silo_learner", build),
    ):
        try:
            last = Simulation(study, data_root, Path(folder), decoded=decoded).play()
        except AnchorageError as error:
            print(f"ended: {error}")
            return {}
    return last.test["final"] if last.test else last.metrics


def main() -> None:
    """Print the figures; with --json write them, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--ratios", type=float, nargs="+", default=[0, 1, 1.25])
    parser.add_argument("--methods", nargs="+", help="only these rows of the study")
    parser.add_argument("--seeds", type=int, help="how many; as the study says where it is left out")
    parser.add_argument("--metrics", nargs="+", default=["balanced_accuracy", "macro_auc", "accuracy"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    file, decoded, rows = read_document(options.study, StudyFile), DecodedImages(), []
    root = options.data_root or options.study.parent
    for cell in cells_of(file, options.study, Path(tempfile.gettempdir()), options.data_root, "cpu"):
        if options.methods and cell.method not in options.methods:
            continue
        for study in cell.wanted.studies()[: options.seeds]:
            for ratio in options.ratios:
                begun, seed = time.perf_counter(), study.federation.spec.seed
                metrics = dict(figures(study, root, ratio, decoded))
                rounds = study.federation.spec.rounds
                rows.append({"cell": cell.title, "seed": seed, "ratio": ratio, "rounds": rounds, "metrics": metrics})
                scores = "  ".join(f"{name} {metrics[name]:.3f}" for name in options.metrics if name in metrics)
                print(
                    f"{cell.title}  seed {seed}  ratio {ratio:g}  {scores}  {time.perf_counter() - begun:.0f} s",
                    flush=True,
                )
                if options.json:
                    document = {"benchmark": "noise-cost", "study": options.study.name, "rows": rows}
                    options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()

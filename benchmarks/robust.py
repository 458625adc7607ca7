"""Final accuracy under attack, per aggregation: ``make bench-robust ARGS="--attackers 1 3 --json FILE"``.

Ten silos share the digits (`examples/fedavg-digits.yaml`); the first of them attack in every round:

- ``signFlip``: the silo's difference from the global model, negated, four times as long.
- ``scaling``: its difference, fifty times as long.
- ``labelFlip``: trained on labels y turned into 9 - y.
- ``backdoor``: half of its images have a mark in a corner and the label 0, and its difference is so much longer that it replaces the mean's
  (Bagdasaryan et al. 2020). `backdoor` of a row is the share of marked test images of other classes that the final model takes for a 0.

The simulation is that of `fedctl simulate`; what every run refuses (ANC-3011) is refused here, too, and counted in `refused`. Attackers leave running
statistics as they are. A run that ends because its model gives NaN has the accuracy 0, and is counted in `ended`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.api.errors.rounds import OUTLYING_UPDATE
from anchorage.api.files import Study
from anchorage.engine.interfaces import SiloLearner
from anchorage.learning.data import ImageSet
from anchorage.learning.learners import build_server_learner
from anchorage.methods import resolve, validate_study
from anchorage.simulation.images import SharedImages
from anchorage.simulation.run import Simulation
from anchorage.transport.messages import Announcement, Bytes, Evaluation, Out, Progress, Task
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import BUFFERS, Layout
from anchorage.transport.tensors.model import read_arrays

EXAMPLE = Path(__file__).parents[1] / "examples" / "fedavg-digits.yaml"
SILOS = 10
AGGREGATIONS = {
    "mean": "{mean: {}}",
    "median": "{median: {}}",
    "trimmedMean": "{trimmedMean: {share: '0.3'}}",
    "multiKrum": "{multiKrum: {byzantine: 3}}",
    "normBounding": "{normBounding: {}}",
    "zeno": "{zeno: {byzantine: 3}}",
}
FACTORS: dict[str, Callable[[int], float]] = {
    "signFlip": lambda attackers: -4.0,
    "scaling": lambda attackers: 50.0,
    "backdoor": lambda attackers: SILOS / attackers,
}
"""By what an attacker multiplies its difference from the global model."""


def marked(images: ImageSet, rows: np.ndarray) -> ImageSet:
    """Return images of which some have a white mark in a corner, and the label 0."""
    pixels, labels = images.images.copy(), images.labels.copy()
    pixels[rows, :, :3, :3], labels[rows] = 255, 0
    return replace(images, images=pixels, labels=labels)


class PoisonedImages(SharedImages):
    """The silos' images, those of attackers as their attack has them."""

    attack, attackers = "none", 0

    def of(self, section: DataSection, *, labelled: bool = True) -> ImageSet:
        """Return a section's images."""
        images = super().of(section, labelled=labelled)
        part = getattr(section, "partition", None)
        if part is None or part.part >= self.attackers:
            return images
        if self.attack == "labelFlip":
            return replace(images, labels=len(images.stratum_names) - 1 - images.labels)
        return marked(images, np.arange(0, len(images), 2)) if self.attack == "backdoor" else images


@dataclass
class Attacker:
    """A silo's learner (`SiloLearner`) whose difference from the global model is multiplied."""

    honest: SiloLearner
    down: Layout
    up: Layout
    factor: float

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train, and lengthen what came of it."""
        sent: list[Bytes] = []

        def keep(nbytes: int) -> Bytes:
            sent.append(out(nbytes))
            return sent[-1]

        announcement = self.honest.train(task, model, keep, progress)
        before = read_arrays(self.down, model)
        for name, trained in read_arrays(self.up, sent[-1]).items():
            if trained.dtype.kind == "f" and not name.endswith(BUFFERS):
                trained[...] = before[name] + self.factor * (trained - before[name])
        return replace(announcement, update=Manifest.of(self.up.digest, sent[-1]))

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Score a model honestly."""
        return self.honest.evaluate(task, model)


def study_of(aggregation: str, rounds: int, seed: int, alpha: str) -> Study:
    """Return the federation."""
    return validate_study(
        EXAMPLE,
        [
            f"spec.rounds={rounds}",
            f"spec.seed={seed}",
            "spec.protocol.minSilos=3",
            "spec.method.weighting={uniform: {}}",
            f"spec.method.aggregation={AGGREGATIONS[aggregation]}",
            "spec.method.local={epochs: 2, optimiser: {sgd: {learningRate: '0.1'}}}",
            f"silo.spec.managed.data.partition.alpha={alpha}",
        ],
        SILOS,
    )


def play(study: Study, attack: str, attackers: int, folder: Path) -> dict[str, Any]:
    """Play a federation under attack; return accuracy and backdoor rate of the final model on the test images, and how many updates were refused."""
    spec = study.federation.spec
    images = PoisonedImages(folder, spec.model_description, spec.seed, folder)
    images.attack, images.attackers = attack, attackers
    simulation = Simulation(study, folder, folder / "state", images=images)
    names, learners = [silo.metadata.name for silo in study.silos[:attackers]], simulation._learners
    server = simulation._composition.learners[-1]
    down, up = server.down, server.up

    def hostile(silo: str) -> SiloLearner:
        honest = learners(silo)
        return Attacker(honest, down, up, FACTORS[attack](attackers)) if silo in names and attack in FACTORS else honest

    simulation._learners = hostile
    try:
        last = simulation.play()
    except AnchorageError as error:
        if error.failure is not LOSS_NOT_FINITE:
            raise
        return {"accuracy": 0.0, "backdoor": 0.0, "refused": 0, "ended": 1}
    evaluation = spec.evaluation
    assert evaluation is not None and evaluation.test is not None
    test = images.of(evaluation.test)
    others = test.select(np.flatnonzero(test.labels != 0))
    judge = build_server_learner(
        model=spec.model_description,
        method=resolve(spec.method),
        seed=spec.seed,
        test=marked(others, np.arange(len(others))),
    )
    store = simulation.store.latest()
    assert store is not None
    parts = [part for record in simulation.store.history() for part in record.silos]
    return {
        "accuracy": last.test["final"]["accuracy"],
        "backdoor": judge.test(store.model, last.round).metrics["accuracy"],
        "refused": sum(part.code == OUTLYING_UPDATE.code for part in parts),
        "ended": 0,
    }


def main() -> None:
    """Print the table; with --json write the rows, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--attackers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--attacks", nargs="+", default=["signFlip", "scaling", "labelFlip", "backdoor"])
    parser.add_argument("--aggregations", nargs="+", default=list(AGGREGATIONS), choices=AGGREGATIONS)
    parser.add_argument(
        "--alpha", default="1", help="of the Dirichlet draw that divides classes; smaller is more uneven"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for attack, attackers in [("none", 0), *((a, n) for a in options.attacks for n in options.attackers)]:
        for aggregation in options.aggregations:
            begun, results = time.perf_counter(), []
            for seed in options.seeds:
                with tempfile.TemporaryDirectory(prefix="anchorage-bench-") as folder:
                    study = study_of(aggregation, options.rounds, seed, options.alpha)
                    results.append(play(study, attack, attackers, Path(folder)))
            means = {key: statistics.mean(each[key] for each in results) for key in results[0]}
            rows.append({"attack": attack, "attackers": attackers, "aggregation": aggregation, **means})
            row = f"{attack:10} {attackers} attackers  {aggregation:13} accuracy {means['accuracy']:.3f}"
            seconds = time.perf_counter() - begun
            print(
                f"{row}  backdoor {means['backdoor']:.3f}  refused {means['refused']:g}  ended {means['ended']:g}  {seconds:.1f} s",
                flush=True,
            )
    if options.json:
        settings = {key: str(value) for key, value in vars(options).items() if key != "json"}
        options.json.write_text(
            json.dumps({"benchmark": "robust", "rows": rows, "settings": settings}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()

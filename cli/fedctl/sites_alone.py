"""``python -m fedctl.sites_alone``: trains a federation's network at each of its labelled silos alone and writes the metrics."""

import argparse
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anchorage.api.errors import AnchorageError
from anchorage.api.federation import Federation, FederationSpec, Protocol, Silo
from anchorage.api.files import Study, load_federation
from anchorage.api.imports import import_large
from anchorage.api.method import Local, MethodSpec, UnlabelledWork
from anchorage.api.metrics import metric_order
from anchorage.api.stages import stage_method
from anchorage.methods import check, resolve
from anchorage.methods.alone import measured_alone
from anchorage.methods.bounds import LOWER_BOUND
from anchorage.methods.checks import WITHOUT_LABELS
from anchorage.transport.files import write_atomically
from fedctl.anchors_alone import LEAST_PRIORITY, scored_part
from fedctl.workdir import read_json

MOST_SITES = 5
"""Labelled silos that are trained alone: those that stand first in the file."""

Metrics = Mapping[str, float]


@dataclass
class AloneScores:
    """What was measured so far, on the images of `scored_part`."""

    labels: Metrics | None = None
    """The silos with labels together, without the images that have none."""
    sites: dict[str, Metrics] = field(default_factory=dict)
    """Each silo by its name."""

    @classmethod
    def read(cls, file: Path) -> "AloneScores":
        """Return what `write` wrote; nothing where there is no whole file."""
        values: dict[str, Any] = read_json(file) or {}
        return cls(values.get("labels"), dict(values.get("sites", {})))

    def write(self, file: Path) -> None:
        """Replace the file."""
        write_atomically(file, json.dumps({"labels": self.labels, "sites": self.sites}).encode())


@dataclass(frozen=True, slots=True)
class Training:
    """A training of some of the silos without the others."""

    site: str
    """The silo, where it is one alone; empty of all silos with labels."""
    silos: tuple[str, ...]
    """Who trains."""

    def __str__(self) -> str:
        return self.site or "the labels"


def trainings(federation: Federation, silos: Sequence[Silo]) -> list[Training]:
    """Return what a federation is held against; nothing where its server trains, or scores no images, or silos do not train on labels.

    Where images without labels take part, that is also the labels alone: silos with labels, without such images.
    """
    labelled = [silo for silo in silos if silo.spec.labels != "None" and silo.spec.managed is not None]
    if measured_alone(federation.spec) != "Sites" or len(silos) < 2:
        return []
    names = tuple(silo.metadata.name for silo in labelled)
    single_sites = [Training(name, (name,)) for name in names[:MOST_SITES]]
    partly = any(silo.spec.labels != "All" for silo in silos)
    joined = (
        partly and resolve(federation.spec.method, federation.spec.task).facts() & WITHOUT_LABELS and len(names) > 1
    )
    return [*single_sites, Training("", names)] if joined else single_sites


def remaining_trainings(wanted: Sequence[Training], scores: AloneScores) -> list[Training]:
    """Return the trainings that are left."""
    return [each for each in wanted if (each.site not in scores.sites if each.site else scores.labels is None)]


def study_of(study: Study, names: Collection[str]) -> Study:
    """Return a federation of some of its silos that learns from labels alone: the same network, seed, rounds and local settings.

    A warm-up that learns from labels alone goes first here, too; the rounds of others, such as a self-supervised one, are left out. A
    round of an asynchronous federation is one silo's update; each of these silos has its share of them.
    """
    chosen = [place for place, silo in enumerate(study.silos) if silo.metadata.name in names]
    spec = study.federation.spec
    warm_up = tuple(
        stage for stage in spec.warm_up if not resolve(stage_method(stage), spec.task).facts() & WITHOUT_LABELS
    )
    rounds = spec.rounds - sum(stage.rounds for stage in spec.warm_up if stage not in warm_up)
    if spec.protocol.mode == "Asynchronous":
        rounds = max(1, rounds // len(study.silos))
    evaluation = spec.evaluation and spec.evaluation.model_copy(update={"every_rounds": rounds})
    protocol = Protocol(round_deadline_seconds=spec.protocol.round_deadline_seconds)
    changes = {
        "rounds": rounds,
        "warm_up": warm_up,
        "anchor_data": None,
        "evaluation": evaluation,
        "protocol": protocol,
    }
    silos = tuple(study.silos[place] for place in chosen)
    for method in _methods(spec):
        alone = spec.model_copy(update={**changes, "method": method})
        federation = study.federation.model_copy(update={"spec": alone})
        if not check(federation, silos):
            break
    sources = (study.sources[0], *(study.sources[place + 1] for place in chosen))
    return replace(study, federation=federation, silos=silos, sources=sources)


def _methods(spec: FederationSpec) -> Iterator[MethodSpec]:
    """Yield the method's part that learns from labels, then the same with the loss and the batch normalisation of plain averaging."""
    method = resolve(spec.method, spec.task)
    values = {name: getattr(method.local, name) for name in Local.model_fields}
    local = Local(**{**values, "cycle": None, "unlabelled": UnlabelledWork()})
    yield MethodSpec(name=LOWER_BOUND.name, local=local, local_loss=method.local_loss, batch_norm=method.batch_norm)
    yield MethodSpec(name=LOWER_BOUND.name, local=local)


def measure(study: Study, names: Collection[str], data_root: Path, device: str = "auto") -> dict[str, float]:
    """Train some silos without the others, and return the last model's metrics on the images of `scored_part`.

    Raises
    ------
    AnchorageError
        The images cannot be used, or the training failed.
    """
    import_large("anchorage.simulation.run")
    from anchorage.simulation.run import simulate

    with TemporaryDirectory(prefix="anchorage-alone-") as state:
        record, _ = simulate(study_of(study, names), data_root, Path(state), device=device)
    metrics = record.test["final"] if scored_part(study.federation.spec) == "test" else record.metrics
    return {name: metrics[name] for name in metric_order() if name in metrics}


def main() -> int:
    """Train what was not measured before, write the metrics after each training, and return the exit status."""
    parser = argparse.ArgumentParser(prog="fedctl.sites_alone", description="Trains each labelled silo alone.")
    parser.add_argument("--federation", type=Path, required=True, help="the federation's documents")
    parser.add_argument("--data-root", type=Path, required=True, help="folder that claims name folders of")
    parser.add_argument("--out", type=Path, required=True, help="file for the metrics")
    options = parser.parse_args()
    os.nice(LEAST_PRIORITY)
    study, scores, status = load_federation(options.federation), AloneScores.read(options.out), 0
    for training in remaining_trainings(trainings(study.federation, study.silos), scores):
        try:
            metrics = measure(study, training.silos, options.data_root)
        except AnchorageError as error:
            sys.stderr.write(f"{AnchorageError(error.failure, f'{training} alone: {error.message}')}\n")
            status = error.failure.exit_code
            continue
        if training.site:
            scores.sites[training.site] = metrics
        else:
            scores.labels = metrics
        scores.write(options.out)
    return status


if __name__ == "__main__":
    sys.exit(main())

"""Results of runs and simulations: the rounds of every seed, read from working folders, and means over seeds."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.federation import Federation, Silo
from anchorage.api.files import Study, load_federation
from anchorage.api.metric_names import ACCEPTANCE, PSEUDO_LABEL_ACCURACY
from anchorage.api.metrics import lower_is_better, score, sort_metrics
from anchorage.api.regular_files import read_regular
from anchorage.api.silo_state import SiloState
from anchorage.api.text import in_percent
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.engine.store.records import record_from_json, record_to_json
from fedctl.observation import read_journal
from fedctl.workdir import Workdir, read_json

SCHEMA_VERSION = 1
MOST_CURVES, MOST_CURVE_POINTS = 100, 500
"""Silos, and rounds of each, whose pseudo-labels a seed's file follows."""
Curve = tuple[tuple[int, float], ...]
"""Rounds and a value after each, ascending."""
OF_SILOS = ("silos_", "worst_silo_")
"""How names of metrics begin that are of the silos' own images beside those of the server's (`anchorage.engine.held_out`)."""
TRAINED = (SiloState.COUNTED, SiloState.INACTIVE)
"""States of silos' parts that say what came of the training."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One whole run."""

    seed: int
    """Its seed."""
    rounds: tuple[RoundRecord, ...]
    """Ascending, at least one; of a simulation with every silo's latest part alone, see `latest_parts`."""
    seconds: float
    """How long it took, on the machine's clock."""
    device: str = ""
    """Where it was computed, such as ``cpu``; empty where that is not known."""
    pseudo_labels: Mapping[str, Curve] = field(default_factory=dict)
    """Share of the accepted pseudo-labels that are right, over the rounds, by silo; see `pseudo_label_curves`."""

    @property
    def digest(self) -> str:
        """Content address of the last model."""
        return self.rounds[-1].digest

    @property
    def silos(self) -> dict[str, SiloRecord]:
        """The latest part of each silo."""
        return {part.name: part for entry in self.rounds for part in entry.silos if part.state in TRAINED}

    @property
    def nbytes(self) -> int:
        """Model bytes that travelled, up and down."""
        return sum(entry.bytes_up + entry.bytes_down for entry in self.rounds)

    def best_round(self, first: int = 0) -> RoundRecord:
        """Return the best round from `first` on (`anchorage.api.metrics.score`); the last one where no round has a metric to go by."""
        scored_rounds = [
            (scored, entry) for entry in self.rounds if entry.round >= first and (scored := score(entry.metrics))
        ]
        return max(scored_rounds, key=lambda each: each[0], default=(None, self.rounds[-1]))[1]

    def values(self, metric: str, first: int = 0) -> list[float]:
        """Return a metric of every round, from `first` on, that has it; NaN where it is not finite."""
        return [entry.metrics[metric] for entry in self.rounds if entry.round >= first and metric in entry.metrics]

    def as_document(self) -> dict[str, Any]:
        """Return JSON values that `read` takes."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "seed": self.seed,
            "digest": self.digest,
            "seconds": self.seconds,
            "device": self.device,
            "rounds": [record_to_json(entry) for entry in self.rounds],
            **({"pseudoLabelAccuracy": self.pseudo_labels} if self.pseudo_labels else {}),
        }

    @classmethod
    def read(cls, path: Path) -> "SeedResult":
        """Read a seed's file.

        Raises
        ------
        AnchorageError
            It cannot be read.
        """
        try:
            values = json.loads(read_regular(path))
            if values["schemaVersion"] != SCHEMA_VERSION:
                raise ValueError(f"schemaVersion {values['schemaVersion']}, expected {SCHEMA_VERSION}")
            rounds = tuple(map(record_from_json, values["rounds"]))
            if not rounds:
                raise ValueError("no rounds")
            accuracy_curves = values.get("pseudoLabelAccuracy", {})
            curves = {
                name: tuple((int(at), float(share)) for at, share in points) for name, points in accuracy_curves.items()
            }
            return cls(int(values["seed"]), rounds, float(values["seconds"]), str(values["device"]), curves)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{path} is no result of a seed ({type(error).__name__}: {error}); remove it and simulate again"
            raise AnchorageError(commands.NO_RESULTS, message) from error


def latest_parts(history: Sequence[RoundRecord]) -> tuple[RoundRecord, ...]:
    """Return records without the silos' parts, but for the last one of each silo: of thousands of silos and rounds all would be too many."""
    last = {part.name: entry.round for entry in history for part in entry.silos if part.state in TRAINED}
    return tuple(
        replace(entry, silos=tuple(part for part in entry.silos if last.get(part.name) == entry.round))
        for entry in history
    )


def pseudo_label_curves(history: Sequence[RoundRecord]) -> dict[str, Curve]:
    """Return by silo the rounds with the share of its accepted pseudo-labels that are right.

    Of many silos the first `MOST_CURVES` by name, of many rounds every second, third, ... up to `MOST_CURVE_POINTS`.
    """
    points_by_silo: dict[str, list[tuple[int, float]]] = {}
    for entry in history:
        for part in entry.silos:
            if PSEUDO_LABEL_ACCURACY in part.metrics:
                points_by_silo.setdefault(part.name, []).append((entry.round, part.metrics[PSEUDO_LABEL_ACCURACY]))
    return {
        name: tuple(points_by_silo[name][:: -(-len(points_by_silo[name]) // MOST_CURVE_POINTS)])
        for name in sorted(points_by_silo)[:MOST_CURVES]
    }


@dataclass(frozen=True, slots=True)
class Results:
    """The results in a working folder."""

    folder: Path
    """The folder, as it was named."""
    federation: Federation
    """What was run."""
    silos: tuple[Silo, ...]
    """The silos that took part."""
    seeds: tuple[SeedResult, ...]
    """Ascending by seed, at least one."""

    @property
    def first(self) -> int:
        """The first round that may be the best one: the main method's, where there is a warm-up."""
        warm_up = self.federation.spec.warm_up
        return sum(stage.rounds for stage in warm_up) + 1 if warm_up else 0

    @property
    def part(self) -> str:
        """On which images `last` and `best` are: ``test``, or ``validation`` where the last round was not tested."""
        return "test" if all(seed.rounds[-1].test for seed in self.seeds) else "validation"

    def images_of(self, metric: str) -> str:
        """Return on which images `last` and `best` of a metric are: ``test``, or as `images_of_rounds`."""
        return "test" if self.part == "test" else self.images_of_rounds(metric)

    def images_of_rounds(self, metric: str = "") -> str:
        """Return on which images rounds have a metric: ``validation``, ``silos' own`` (kept from training by siloPercent), or ``training``
        where nothing is evaluated.
        """
        spec = self.federation.spec
        if "validation" in spec.server_data and not metric.startswith(OF_SILOS):
            return "validation"
        return "silos' own" if spec.evaluation and spec.evaluation.silo_percent else "training"

    def metrics(self) -> list[str]:
        """Return the metrics that every seed has, in the order in which they are shown."""
        if self.part == "test":
            return sort_metrics(self.seeds[0].rounds[-1].test["final"])
        names = sort_metrics(dict.fromkeys(name for entry in self.seeds[0].rounds for name in entry.metrics))
        return [name for name in names if all(seed.values(name) for seed in self.seeds)]

    def of_silos(self) -> dict[str, dict[str, "Spread"]]:
        """Return by silo which share of its unlabelled images was accepted in its last round, and where the truth is known which share of
        the accepted ones was right, over the seeds that have one.
        """
        by_silo: dict[str, dict[str, list[float]]] = {}
        for name, part in (item for seed in self.seeds for item in seed.silos.items()):
            if part.samples.get("unlabelled"):
                metric_lists = by_silo.setdefault(name, {})
                for metric in (ACCEPTANCE, PSEUDO_LABEL_ACCURACY):
                    metric_lists.setdefault(metric, []).extend([part.metrics[metric]] if metric in part.metrics else [])
        reported = (
            (name, {metric: tuple(v) for metric, v in metric_lists.items() if v})
            for name, metric_lists in sorted(by_silo.items())
        )
        return {name: {metric: Spread(v) for metric, v in metric_lists.items()} for name, metric_lists in reported}

    def pseudo_labels(self) -> dict[str, Curve]:
        """Return by silo the share of right ones among its accepted pseudo-labels over the rounds: the mean of the seeds that have one."""
        by_silo: dict[str, dict[int, list[float]]] = {}
        for seed in self.seeds:
            for name, points in seed.pseudo_labels.items():
                for at, share in points:
                    by_silo.setdefault(name, {}).setdefault(at, []).append(share)
        return {
            name: tuple((at, math.fsum(shares) / len(shares)) for at, shares in sorted(rounds.items()))
            for name, rounds in sorted(by_silo.items())
        }

    def last(self, metric: str) -> "Spread":
        """Return a metric of the final model (without test images: of the last round that has it), over the seeds."""
        if self.part == "test":
            return Spread(tuple(seed.rounds[-1].test["final"][metric] for seed in self.seeds))
        return Spread(tuple(seed.values(metric)[-1] for seed in self.seeds))

    def best(self, metric: str) -> "Spread":
        """Return a metric on the test images of the model that was the best on the validation images, over the seeds.

        Without test images: the best finite value of the metric over the rounds; a loss is the better the smaller it is. Where no best model
        was tested (those of SOLO stay at the silos): of the final one.
        """
        if self.part == "test":
            last = [seed.rounds[-1].test for seed in self.seeds]
            return Spread(tuple(test.get("best", test["final"])[metric] for test in last))
        choose = min if lower_is_better(metric) else max
        scores = ([value for value in seed.values(metric, self.first) if math.isfinite(value)] for seed in self.seeds)
        return Spread(tuple(choose(values, default=math.nan) for values in scores))

    def at_best(self) -> dict[str, "Spread"]:
        """Return the metrics of every seed's best round, where all these rounds have them; with test images: as `best`."""
        if self.part == "test":
            return {name: self.best(name) for name in self.metrics()}
        rounds = [seed.best_round(self.first).metrics for seed in self.seeds]
        names = [name for name in self.metrics() if all(name in metrics for metrics in rounds)]
        return {name: Spread(tuple(metrics[name] for metrics in rounds)) for name in names}


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of one quantity, one of each seed."""

    values: tuple[float, ...]
    """At least one."""

    @property
    def mean(self) -> float:
        """Arithmetic mean; NaN where a value is not finite."""
        return math.fsum(self.values) / len(self.values) if all(map(math.isfinite, self.values)) else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of the sample (divisor n - 1); NaN for a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 and math.isfinite(self.mean) else math.nan

    def __str__(self) -> str:
        return f"{self.mean:.4f}" + (f" ± {self.std:.4f}" if math.isfinite(self.std) else "")

    def percent(self) -> str:
        """Write shares in percent."""
        return in_percent(self.mean, 1) + (f" ± {100 * self.std:.1f}" if math.isfinite(self.std) else "") + " %"

    def as_document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"mean": finite(self.mean), "std": finite(self.std), "values": [finite(value) for value in self.values]}


@dataclass(frozen=True, slots=True)
class SimulationFolder:
    """Paths of a simulation."""

    root: Path
    """The folder."""

    @property
    def documents(self) -> Path:
        """The documents that are simulated."""
        return Workdir(self.root).simulation

    @property
    def multiplied(self) -> Path:
        """How many silos are made of those in the documents."""
        return self.root / "silos.json"

    def study(self) -> Study:
        """Read what is simulated.

        Raises
        ------
        AnchorageError
            It cannot be read.
        """
        return load_federation(self.documents, silos=(read_json(self.multiplied) or {}).get("silos"))

    def state(self, seed: int) -> Path:
        """Return the folder with the state of a seed, from which it goes on."""
        return self.root / f"seed-{seed}"

    def result(self, seed: int) -> Path:
        """Return the file of a finished seed."""
        return self.root / "seeds" / f"{seed}.json"

    def models(self, seed: int) -> Path:
        """Return the folder of a finished seed's models and their card."""
        return self.root / "models" / str(seed)

    def count_committed(self) -> int:
        """Return the most rounds that a seed has: those of finished seeds, and of others as far as they are on disk."""
        journals = self.root.glob("seed-*/rounds/journal.jsonl")
        unfinished = (read_regular(journal).count(b"\n") - 1 for journal in journals)
        return max((*(seed.rounds[-1].round for seed in self.read_finished()), *unfinished), default=0)

    def forget_beginnings(self) -> bool:
        """Remove files of attempts that failed before round 1; return False if there are rounds."""
        if self.read_finished() or self.count_committed() > 0 or any(self.root.glob("seed-*/results/*/*")):
            return False
        for folder in (*self.root.glob("seed-*"), self.root / "tracking"):
            rmtree(folder, ignore_errors=True)
        self.multiplied.unlink(missing_ok=True)
        return True

    def read_finished(self) -> tuple[SeedResult, ...]:
        """Read every finished seed, ascending.

        Raises
        ------
        AnchorageError
            One of the files cannot be read.
        """
        results = map(SeedResult.read, (self.root / "seeds").glob("*.json"))
        return tuple(sorted(results, key=lambda result: result.seed))


def read_results(folder: Path) -> Results:
    """Read the working folder of a simulation or of a run.

    Raises
    ------
    AnchorageError
        It is neither, no seed is finished, no round is committed, or a file is damaged.
    """
    simulation, run = SimulationFolder(folder), Workdir(folder)
    if simulation.documents.exists():
        study, seeds, wanted = simulation.study(), simulation.read_finished(), "finished seed"
        longest = max((seed.rounds[-1].round for seed in seeds), default=0)
        seeds = tuple(seed for seed in seeds if seed.rounds[-1].round == longest)  # others are being prolonged
    elif run.federation.exists():
        study, seeds, wanted = load_federation(run.federation), _run_seed(run), "committed round"
    else:
        message = f"{folder} is the working folder neither of a `fedctl simulate` nor of a `fedctl run`; name another"
        raise AnchorageError(commands.NO_RESULTS, message)
    if not seeds:
        raise AnchorageError(commands.NO_RESULTS, f"{folder} has no {wanted} yet; wait, or go on with its command")
    return Results(folder, study.federation, study.silos, seeds)


def _run_seed(run: Workdir) -> tuple[SeedResult, ...]:
    try:
        rounds = tuple(map(record_from_json, read_journal(run)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{run.journal} is no journal of this version ({type(error).__name__}: {error})"
        raise AnchorageError(commands.NO_RESULTS, message) from error
    if not rounds:
        return ()
    seed = load_federation(run.federation).federation.spec.seed
    return (SeedResult(seed, rounds, rounds[-1].time - rounds[0].time),)


def common_metrics(results: Sequence[Results]) -> list[str]:
    """Return the metrics that all results have, in the order of the first."""
    others = [set(result.metrics()) for result in results[1:]]
    return [name for name in results[0].metrics() if all(name in names for names in others)]


def finite(value: float) -> float | None:
    """Return a number as JSON has it: None where it is not finite."""
    return value if math.isfinite(value) else None

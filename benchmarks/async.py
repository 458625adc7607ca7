"""Time of one commit to the asynchronous global model, by the number of silos: ``make bench-async ARGS="--json FILE"``.

A commit replaces a silo's previous update by its new one and computes the new global model with its digests. The floor is the unavoidable
work, whatever the number of silos: reading the two updates once, by two threads. The numbers of silos are measured in turn, so
that a busy moment of the machine affects all equally.

The second table is of whole federations in one process: engine, workers and store, from one commit to the next, once every silo has
registered and committed. Null trainers, a small model so that a thousand updates fit into memory.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: the floor has two threads of its own

import numpy as np
from safetensors.numpy import save_file

from anchorage.api.base import FederationMetadata, Metadata
from anchorage.api.federation import Federation, FederationSpec, Protocol, Silo, SiloSpec
from anchorage.api.files import Study
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelSpec
from anchorage.engine.aggregation import ContributionSum
from anchorage.engine.events import RoundCommitted, RunEvent
from anchorage.engine.store import MemoryStore, SpareUpdates
from anchorage.pieces.task.classification import Classification
from anchorage.simulation.run import Rounds
from anchorage.transport.messages import Profile
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_server.learner import FileModel
from anchorage_silo.null_learner import NullLearner

THREADS = 2
DISTINCT_UPDATES = 8
"""Updates that the silos share, so that a thousand of them fit into memory."""


class Committing:
    """An asynchronous global model to which every silo has committed once.

    Parameters
    ----------
    silos : int
        How many.
    updates : list of ModelBytes
        Shared by the silos in turn.
    """

    def __init__(self, silos: int, updates: list[ModelBytes]) -> None:
        self.silos = silos
        self._updates = updates
        self._community = ContributionSum(updates[0].layout)
        self._held = [updates[k % len(updates)] for k in range(silos)]
        for k, update in enumerate(self._held):
            self._community.commit(str(k), 1.0, update)

    def commit(self, number: int) -> float:
        """Commit one silo's next update and make the model; return the seconds."""
        silo = number % self.silos
        update = self._updates[(number + 3) % len(self._updates)]
        start = time.perf_counter()
        self._community.commit(str(silo), 1.0, update, self._held[silo], 1.0)
        self._community.model()
        seconds = time.perf_counter() - start
        self._held[silo] = update
        return seconds


def read_two(pool: ThreadPoolExecutor, one: ModelBytes, other: ModelBytes) -> float:
    """Read two updates once and return the seconds."""

    def read(index: int) -> None:
        for chunk in (one.chunk(index), other.chunk(index)):
            values = np.frombuffer(chunk, "<f4")
            np.dot(values, values)

    start = time.perf_counter()
    list(pool.map(read, range(len(one.chunks))))
    return time.perf_counter() - start


@dataclass(frozen=True)
class Commits:
    """Notes when the engine committed."""

    at: list[float] = field(default_factory=list)

    def __call__(self, event: RunEvent) -> None:
        """Note a commit."""
        if not isinstance(event, RoundCommitted):
            return
        self.at.append(time.perf_counter())


def played(silos: int, parameters: int, commits: int, folder: Path) -> list[float]:
    """Play an asynchronous federation; return the seconds between commits after the first of every silo."""
    initial = folder / "initial.safetensors"
    save_file({"w": np.zeros(parameters, np.float32)}, initial)
    spec = FederationSpec(
        rounds=silos + commits,
        task=Classification(classes=("a", "b")),
        model=ModelSpec(network="SmallCnn", image_size=8, initial=initial.name),
        method=MethodSpec(name="AsyncFedAvg"),
        protocol=Protocol(mode="Asynchronous", min_silos=silos),
    )
    names = [f"silo-{index:05d}" for index in range(silos)]
    members = [Silo(metadata=Metadata(name=name), spec=SiloSpec(federation="bench", labels="All")) for name in names]
    study = Study(Federation(metadata=FederationMetadata(name="bench"), spec=spec), tuple(members), initial, ())
    model, spare, watch = FileModel(initial), SpareUpdates(), Commits()
    learner = NullLearner(model.down, model.up, 0.001, 100)
    profiles = {name: Profile("All", 100, "benchmark") for name in names}
    Rounds(study, model, profiles, lambda name: learner, MemoryStore(spare), spare, watch).play()
    return np.diff(watch.at[-commits:]).tolist()


def print_federations(silos: list[int], parameters: int, commits: int) -> list[dict[str, float]]:
    """Print and return how long a commit takes in whole federations."""
    rows: list[dict[str, float]] = []
    print(f"whole federations, {parameters * 4 / 1e6:.1f} MB per update\nsilos  commit ms  of the first row")
    for count in silos:
        with tempfile.TemporaryDirectory() as folder:
            median = statistics.median(played(count, parameters, commits, Path(folder)))
        first = rows[0]["median_s"] if rows else median
        rows.append({"silos": count, "median_s": median, "ratio_to_first": median / first})
        print(f"{count:5d}  {median * 1e3:9.2f}  {median / first:16.2f}")
    return rows


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silos", type=int, nargs="+", default=[10, 100, 1000], help="numbers of silos")
    parser.add_argument("--parameters", type=int, default=2_800_000, help="float32 numbers of the model")
    parser.add_argument("--commits", type=int, default=30, help="counted commits per number of silos")
    parser.add_argument(
        "--federation-parameters", type=int, default=100_000, help="numbers of the second table's model"
    )
    parser.add_argument("--federation-commits", type=int, default=300, help="counted commits of the second table")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    layout = Layout.of([("w", "F32", (arguments.parameters,))])
    draws = np.random.default_rng(0)
    updates = [
        ModelBytes.from_arrays(layout, {"w": draws.standard_normal(arguments.parameters, dtype=np.float32)})
        for _ in range(DISTINCT_UPDATES)
    ]
    federations = [Committing(silos, updates) for silos in arguments.silos]
    seconds: dict[int, list[float]] = {federation.silos: [] for federation in federations}
    floor = []
    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(-2, arguments.commits):
            durations = {federation.silos: federation.commit(number + 2) for federation in federations}
            lowest = read_two(pool, updates[number % DISTINCT_UPDATES], updates[(number + 1) % DISTINCT_UPDATES])
            if number >= 0:
                floor.append(lowest)
                for silos, value in durations.items():
                    seconds[silos].append(value)
    first = statistics.median(seconds[arguments.silos[0]])
    rows = []
    print(f"{layout.nbytes / 1e6:.1f} MB per update\nsilos  commit ms  of the first row  floor ms")
    for silos, values in seconds.items():
        median, lowest = statistics.median(values), statistics.median(floor)
        row = {"silos": silos, "median_s": median, "floor_median_s": lowest, "ratio": median / lowest}
        rows.append({**row, "ratio_to_first": median / first, "model_bytes": layout.nbytes})
        print(f"{silos:5d}  {median * 1e3:9.2f}  {median / first:16.2f}  {lowest * 1e3:8.2f}")
    federation_rows = print_federations(arguments.silos, arguments.federation_parameters, arguments.federation_commits)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"benchmark": "async", "rows": rows, "federations": federation_rows}, indent=2)
        )


if __name__ == "__main__":
    main()

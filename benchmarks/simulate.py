"""Time of a simulated round compared with its unavoidable memory traffic, and the memory of a simulation.

A null trainer adds a constant to every number of a 44.76 MB model; engine, workers, store and checkpoints are those of `fedctl simulate`. Per
silo a round must read the model and write the update, and read the update once more for the mean: the floor is the time of just that, with
numpy on the same arrays in the same process, in blocks between the rounds. Memory is measured in separate processes.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from anchorage.api.base import FederationMetadata, Metadata
from anchorage.api.federation import Federation, FederationSpec, Protocol, Silo, SiloSpec
from anchorage.api.files import Study
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelSpec
from anchorage.engine.events import RoundCommitted, RunEvent
from anchorage.engine.store import DiskStore, HeldUpdates, Identity, SpareUpdates
from anchorage.learning.randomness import generator
from anchorage.pieces.task.classification import Classification
from anchorage.simulation.run import Rounds
from anchorage.simulation.silos import Learners
from anchorage.transport.messages import Profile
from anchorage_server.learner import FileModel
from anchorage_silo.null_learner import NullLearner
from fedctl.research.resnet18 import random_model

CLASSES = 7
MODEL_BYTES = 44_759_784
SKIPPED = 3
"""Commits that do not count: the initial model, and rounds whose memory is fresh."""
ARRAYS = 12
"""Models that the floor works on."""


@dataclass(frozen=True)
class Stopwatch:
    """Takes the time of every round, and plays the floor between two rounds, outside that time.

    Parameters
    ----------
    floor : MemoryFloor or None
        What is played.
    rounds, floors : list of float
        Seconds.
    """

    floor: "MemoryFloor | None" = None
    rounds: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)
    begun: list[float] = field(default_factory=lambda: [time.perf_counter()])

    def __call__(self, event: RunEvent) -> None:
        """Note a round's end."""
        if not isinstance(event, RoundCommitted):
            return
        self.rounds.append(time.perf_counter() - self.begun[0])
        if self.floor is not None:
            self.floors.append(self.floor.seconds())
        self.begun[0] = time.perf_counter()


def simulate_rounds(silos: int, per_round: int, rounds: int, folder: Path, watch: Stopwatch) -> None:
    """Play rounds with a model of 44.76 MB."""
    initial = folder / "initial.safetensors"
    save_file(dict(random_model(1, CLASSES, generator(0, "benchmark"))), initial)
    play_rounds(silos, per_round, rounds, initial, watch)


def play_rounds(silos: int, per_round: int, rounds: int, initial: Path, watch: Stopwatch) -> None:
    """Play rounds with the model of a file, in whose folder they are stored."""
    study = _study(silos, per_round, rounds, initial)
    model = FileModel(initial)
    silo = NullLearner(model.down, model.up, 0.001, 100)
    learners: Learners = lambda name: silo  # noqa: E731
    profiles = {s.metadata.name: Profile("All", 100, "benchmark") for s in study.silos}
    spare = SpareUpdates(initial.parent)
    identity = Identity({}, (model.down,))
    with closing(DiskStore(initial.parent / "rounds", identity, updates=HeldUpdates(spare), sync=False)) as store:
        Rounds(study, model, profiles, learners, store, spare, watch).play()


def _study(silos: int, per_round: int, rounds: int, initial: Path) -> Study:
    spec = FederationSpec(
        rounds=rounds,
        task=Classification(classes=tuple(map(str, range(CLASSES)))),
        model=ModelSpec(network="ResNet18ImageNet", image_size=224, initial=initial.name),
        method=MethodSpec(name="FedAvg"),
        protocol=Protocol(silos_per_round=min(silos, per_round)),
    )
    names = [f"silo-{index:05d}" for index in range(silos)]
    members = [Silo(metadata=Metadata(name=name), spec=SiloSpec(federation="bench", labels="All")) for name in names]
    return Study(Federation(metadata=FederationMetadata(name="bench"), spec=spec), tuple(members), initial, ())


class MemoryFloor:
    """The traffic of a round and nothing else, in one thread as the silos are; over more arrays than any cache holds.

    Parameters
    ----------
    per_round : int
        Silos of a round.
    nbytes : int
        Bytes of a model.
    """

    def __init__(self, per_round: int, nbytes: int) -> None:
        self._model = np.ones(nbytes // 4, np.float32)
        buffers = [np.ones_like(self._model) for _ in range(min(ARRAYS, per_round))]
        self._updates = [buffers[index % len(buffers)] for index in range(per_round)]

    def seconds(self) -> float:
        """Write every update from the model, read every update."""
        begun = time.perf_counter()
        for update in self._updates:
            np.add(self._model, np.float32(0.001), out=update)
        for update in self._updates:
            update.max()
        return time.perf_counter() - begun


def peak_resident(silos: int, per_round: int, rounds: int) -> int:
    """Return the peak resident bytes of a process that simulates."""
    command = [sys.executable, __file__, "--only-memory", "--silos", str(silos), "--per-round", str(per_round)]
    command += ["--rounds", str(rounds)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print both tables; with --json write the figures, too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, default=1000)
    parser.add_argument("--per-round", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=6, help="counted rounds")
    parser.add_argument("--memory-per-round", type=int, default=10, help="silos of a round where memory is measured")
    parser.add_argument("--only-memory", action="store_true", help="print this process's peak resident bytes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    floor = None if options.only_memory else MemoryFloor(options.per_round, MODEL_BYTES)
    watch = Stopwatch(floor=floor)
    with tempfile.TemporaryDirectory(prefix="anchorage-bench-") as folder:
        simulate_rounds(options.silos, options.per_round, options.rounds + SKIPPED - 1, Path(folder), watch)
    if options.only_memory:
        status = Path("/proc/self/status").read_text()  # rusage would count the process that started this one
        print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
        return
    seconds, floors = watch.rounds[SKIPPED:], watch.floors[SKIPPED:]
    row = {
        "silos": options.silos,
        "per_round": options.per_round,
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "floor_bytes": 3 * options.per_round * MODEL_BYTES,
        "floor_median_s": statistics.median(floors),
        "floor_min_s": min(floors),
        "ratio": statistics.median(seconds) / statistics.median(floors),
    }
    print(
        f"{row['silos']} silos, {row['per_round']} per round: median {row['median_s']:.2f} s, best {row['min_s']:.2f} s"
    )
    print(
        f"floor, {row['floor_bytes'] / 1e9:.1f} GB: median {row['floor_median_s']:.2f} s, best {row['floor_min_s']:.2f} s"
    )
    print(f"ratio of the medians {row['ratio']:.2f}, of the best {row['min_s'] / row['floor_min_s']:.2f}")
    del floor, watch
    memory = {}
    for silos in (10, 100, 1000):
        memory[silos] = peak_resident(silos, options.memory_per_round, 2)
        print(f"{silos:5d} silos, {options.memory_per_round} per round: peak {memory[silos] / 1e6:.0f} MB resident")
    if options.json:
        values = {"benchmark": "simulate", **row, "peak_rss_bytes": memory}
        options.json.write_text(json.dumps(values, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""Time of a simulated round beside pfl-research 0.6.0 and Flower: ``make bench-simulate-peers ARGS="--json FILE"``.

50 users with 50 random images each (32×32, RGB), one epoch in batches of 10, plain SGD, the network of pfl-research's own CIFAR-10 benchmark (1.63
million parameters, `peers/work.py`), FedAvg over all users. The floor is that work and nothing else: a torch loop that sets the weights, takes the
steps and adds up the differences. One torch thread each; Flower's engine and ``at once`` train on every processor. Peers run in environments of their
own below --environments, which share this one's torch, so that all use the same kernels; they are made at the first run, from the package index.
The first rounds, in which memory is fresh, do not count. All rows are taken in turns, --repeat times, and the medians are told.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from peers import work

from anchorage.api.base import FederationMetadata, Metadata
from anchorage.api.data import DataSection, SiloData
from anchorage.api.federation import Federation, FederationSpec, Managed, Silo, SiloSpec
from anchorage.api.files import Study
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelSpec
from anchorage.api.piece import piece
from anchorage.engine.events import RoundCommitted, RunEvent
from anchorage.learning.data import ImageSet
from anchorage.learning.data.augmentation import Augmentation
from anchorage.pieces.augmentation.per_channel import PerChannel
from anchorage.pieces.slots import Network
from anchorage.pieces.task.classification import Classification
from anchorage.simulation.images import SharedImages
from anchorage.simulation.run import Simulation

PEERS: Mapping[str, str] = {"pfl": "pfl==0.6.0", "flower": "flwr[simulation]==1.41.0"}
SCRIPTS = Path(__file__).parent / "peers"
SKIPPED = 2
NAMES = tuple(map(str, range(work.CLASSES)))


class Unmoved(Augmentation):
    """Views that are the images, as the peers train on them."""

    def _move(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return images


@piece("bench.Unmoved")
class UnmovedImages(PerChannel):
    """Images as they are."""

    mean, std = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)

    def augmentation(self) -> Augmentation:
        """Return the views."""
        return Unmoved(self.mean, self.std)


@piece("bench.Cnn")
class Cnn(Network):
    """The network that all train."""

    def encoder(self, channels: int, side: int) -> torch.nn.Module:
        """Return the encoder."""
        return work.encoder()


class DrawnImages(SharedImages):
    """The users' images, in memory; a section's path is the user's number."""

    def of(self, section: DataSection, *, labelled: bool = True) -> ImageSet:
        """Return a user's images."""
        user, (pixels, labels) = int(section.path), work.drawn()
        ids = tuple(f"{user}-{row}" for row in range(work.IMAGES))
        keys = np.arange(work.IMAGES, dtype=np.uint64) + np.uint64(user * work.IMAGES)
        return ImageSet(pixels[user].numpy(), labels[user].numpy(), ids, ids, labels[user].numpy(), NAMES, keys)

    def count(self, section: DataSection, *, labelled: bool = True) -> int:
        """Return how many a user has."""
        return work.IMAGES

    def truth(self, section: DataSection, *, labelled: bool = True) -> NDArray[np.int64]:
        """Return their classes."""
        return self.of(section).labels


def study(rounds: int) -> Study:
    """Return the federation's documents."""
    sgd = {"learningRate": str(work.RATE), "momentum": "0", "weightDecay": "0"}
    local = {"epochs": 1, "batchSize": work.BATCH, "optimiser": {"sgd": sgd}}
    spec = FederationSpec(
        rounds=rounds,
        task=Classification(classes=NAMES),
        model=ModelSpec(network="bench.Cnn", image_size=work.SIDE, augmentation="bench.Unmoved"),
        method=MethodSpec.model_validate({"name": "FedAvg", "local": local}),
    )
    silos = []
    for user in range(work.USERS):
        data = SiloData(format="ImageFolder", claim_name="drawn", path=str(user))
        silo_spec = SiloSpec(federation="peers", labels="All", managed=Managed(data=data))
        silos.append(Silo(metadata=Metadata(name=f"user-{user:02d}"), spec=silo_spec))
    return Study(Federation(metadata=FederationMetadata(name="peers"), spec=spec), tuple(silos), Path("peers.yaml"), ())


def anchorage_rounds(rounds: int, at_once: int) -> list[float]:
    """Return the seconds of each round of a simulation in this process."""
    torch.set_num_threads(1)
    ends: list[float] = []

    def observe(event: RunEvent) -> None:
        if isinstance(event, RoundCommitted):
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory(prefix="anchorage-bench-") as folder:
        documents, here = study(rounds), Path(folder)
        spec = documents.federation.spec
        images = DrawnImages(here, spec.model_description, spec.seed, here)
        Simulation(documents, here, here / "state", at_once=at_once, images=images).play(observe)
    return np.diff(ends).tolist()


def floor_rounds(rounds: int) -> list[float]:
    """Return the seconds of each round of a bare loop."""
    torch.set_num_threads(1)
    model, (pixels, labels) = work.network(), work.drawn()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    images, durations = work.normalised(pixels), []
    for _ in range(rounds):
        begun, total = time.perf_counter(), {name: torch.zeros_like(value) for name, value in state.items()}
        for user in range(work.USERS):
            model.load_state_dict(state)
            optimiser = torch.optim.SGD(model.parameters(), lr=work.RATE)
            for rows in torch.randperm(work.IMAGES).split(work.BATCH):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(model(images[user][rows]), labels[user][rows]).backward()
                optimiser.step()
            for name, value in model.state_dict().items():
                total[name] += value - state[name]
        state = {name: value + total[name] / work.USERS for name, value in state.items()}
        durations.append(time.perf_counter() - begun)
    return durations


def own_process(which: str, rounds: int) -> list[float]:
    """Return the seconds of each round of one row of this script in a process of its own, so that none warms another up."""
    return _printed([sys.executable, __file__, "--only", which, "--rounds", str(rounds)])


def peer_rounds(name: str, rounds: int, environments: Path) -> list[float]:
    """Return the seconds of each round of a peer; its environment is made where it is missing."""
    python = environments / name / "bin" / "python"
    if not (environments / name / ".made").exists():
        venv.create(environments / name, with_pip=True, clear=True)
        (site,) = (environments / name / "lib").glob("python*/site-packages")
        (site / "shared.pth").write_text(
            sysconfig.get_path("purelib") + "\n"
        )  # behind its own: torch and what it needs
        _run([str(python), "-m", "pip", "install", "--quiet", PEERS[name]])
        (environments / name / ".made").touch()
    return _printed([str(python), str(SCRIPTS / f"{name}_rounds.py"), str(rounds)])


def _run(command: list[str]) -> str:
    quiet = {
        "RAY_DEDUP_LOGS": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env={**os.environ, **quiet}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _printed(command: list[str]) -> list[float]:
    seconds: list[float] = json.loads(_run(command).splitlines()[-1])
    return seconds[SKIPPED:]


def main() -> None:
    """Print a row per simulation; with --json write them, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="counted rounds of each turn")
    parser.add_argument("--repeat", type=int, default=3, help="turns")
    parser.add_argument(
        "--environments", type=Path, default=Path(".anchorage/peers"), help="folder of the peers' environments"
    )
    parser.add_argument("--only", choices=("floor", "anchorage", "anchorage-at-once"), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    processors = len(os.sched_getaffinity(0))
    workloads: Mapping[str, Callable[[int], list[float]]] = {
        "floor": floor_rounds,
        "anchorage": lambda rounds: anchorage_rounds(rounds, 1),
        "anchorage-at-once": lambda rounds: anchorage_rounds(rounds, processors),
    }
    if arguments.only:
        print(json.dumps(workloads[arguments.only](arguments.rounds)))
        return
    rounds, durations = arguments.rounds + SKIPPED, {name: list[float]() for name in (*workloads, *PEERS)}
    for _ in range(arguments.repeat):
        for name in workloads:
            durations[name] += own_process(name, rounds)
        for name in PEERS:
            durations[name] += peer_rounds(name, rounds, arguments.environments.resolve())
    medians = {name: statistics.median(seconds) for name, seconds in durations.items()}
    rows = [
        {
            "name": name,
            "seconds_per_round": median,
            "to_floor": median / medians["floor"],
            "to_pfl": median / medians["pfl"],
            "to_flower": median / medians["flower"],
            "fastest": min(durations[name]),
            "slowest": max(durations[name]),
        }
        for name, median in medians.items()
    ]
    print(
        f"{'seconds a round':18} {'median':>8} {'fastest':>8} {'slowest':>8} {'to floor':>9} {'to pfl':>7} {'to Flower':>10}"
    )
    for row in rows:
        figures = f"{row['seconds_per_round']:8.3f} {row['fastest']:8.3f} {row['slowest']:8.3f}"
        print(f"{row['name']:18} {figures} {row['to_floor']:9.2f} {row['to_pfl']:7.2f} {row['to_flower']:10.3f}")
    if arguments.json:
        about = {"benchmark": "simulate-peers", "processors": processors, "torch": torch.__version__}
        arguments.json.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

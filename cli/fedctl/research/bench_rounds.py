"""``fedctl bench rounds``: measures the round time on this machine with the production server and agents and an idle trainer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import typer
from safetensors import safe_open
from safetensors.numpy import save_file

import anchorage
from anchorage.api.base import FederationMetadata, Metadata
from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.tracking import TRACKING_INCOMPLETE
from anchorage.api.federation import Federation, FederationSpec, Protocol, Silo, SiloSpec, Tracking
from anchorage.api.files import dump_yaml
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelSpec
from anchorage.api.regular_files import open_regular
from anchorage.learning.randomness import generator
from anchorage.pieces.task.classification import Classification
from fedctl.configurations import LocalSilo, open_authority, write_server_config, write_silo_config
from fedctl.observation import last_status
from fedctl.research.resnet18 import random_model
from fedctl.supervision import Plan, Supervisor
from fedctl.workdir import Workdir
from fedctl.writing import writing

CLASSES = 7
INITIAL = "initial.safetensors"
STEP = Decimal("0.001")
SAMPLES = 100
LOOK_SECONDS = 0.1


@dataclass
class JsonWatcher:
    """Prints events as JSON, one object per line."""

    run: Workdir
    """The benchmark's run."""
    _offset: int = 0
    _round: int = -1

    def started(self, name: str, pid: int) -> None:
        """Print a process."""
        tell(event="process", role="server" if name == "server" else "silo", pid=pid)

    def refresh(self, endpoints: Mapping[str, str] | None, processes: Mapping[str, str]) -> int:
        """Print the rounds committed since the last call."""
        try:
            with open_regular(self.run.journal) as journal:
                journal.seek(self._offset)
                for line in journal:
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    record = json.loads(line)
                    self._round = record["round"]
                    tell(event="round", round=self._round, t=record["time"])
        except FileNotFoundError:
            pass
        return self._round

    def say(self, line: str) -> None:
        """Tell people."""
        typer.echo(line, err=True)


def tell(**values: Any) -> None:
    """Print one JSON object as a line, flushed."""
    typer.echo(json.dumps(values))


def bench_rounds(silos: int, copies: int, rounds: int, work: Path) -> None:
    """Run rounds of federated averaging between real processes and print when each was committed.

    Agent i, from 0, adds 0.001 (i + 1) to every float and reports 100 (i + 1) samples.

    Parameters
    ----------
    silos : int
        Number of agents.
    copies : int
        Size of the model: copies of a ResNet-18 with 7 classes, 44.76 MB each.
    rounds : int
        Number of rounds.
    work : Path
        Gets a new folder with everything: certificates, states, MLflow store, logs.

    Raises
    ------
    AnchorageError
        The folder cannot be written, or a process refused.
    """
    run = _new_run(work)
    save_file(dict(random_model(copies, CLASSES, generator(0, "benchmark"))), run.root / INITIAL)
    federation = _federation(run, silos, rounds)
    members = [
        Silo(metadata=Metadata(name=name), spec=SiloSpec(federation="bench", labels="All")) for name in _names(silos)
    ]
    run.federation.write_text(dump_yaml([federation, *members]))
    open_authority(run, "bench")
    agents = {agent.name: agent for agent in map(_agent, range(silos), _names(silos))}

    def silo_config(name: str, endpoints: Mapping[str, str]) -> Path:
        return write_silo_config(run, agents[name], "bench", run.root, endpoints)

    plan = Plan(
        workdir=run,
        silos=tuple(agents),
        min_silos=silos,
        server_config=partial(write_server_config, run, run.root),
        silo_config=silo_config,
        look_seconds=LOOK_SECONDS,
    )
    watcher = JsonWatcher(run)
    try:
        Supervisor(plan, watcher).play()
    except AnchorageError as refused:
        if (
            refused.failure is not TRACKING_INCOMPLETE
        ):  # tensors side by side are no network, so they cannot be registered
            raise
    watcher.refresh(None, {})
    model = last_status(run).model
    if model is None:
        raise AnchorageError(commands.NO_MODEL_YET, f"the server left no final model in {run.server}")
    error = largest_difference(run.root / INITIAL, Path(model.path), silos, rounds)
    tell(event="final", error=error, version=anchorage.__version__)


def largest_difference(initial: Path, final: Path, silos: int, rounds: int) -> float:
    """Compare the final model with the closed form, one tensor at a time.

    With weights 100 (i + 1) and steps 0.001 (i + 1) each round adds 0.001 Σ(i + 1)² / Σ(i + 1) = 0.001 (2 N + 1) / 3 to every float;
    integers stay as they are.

    Parameters
    ----------
    initial, final : Path
        The models before and after, safetensors files.
    silos, rounds : int
        What was played.

    Returns
    -------
    float
        Largest absolute difference over all tensors; infinite where a tensor is missing or of another shape or dtype.
    """
    total = rounds * float(STEP) * (2 * silos + 1) / 3
    largest = 0.0
    with safe_open(initial, "numpy") as old, safe_open(final, "numpy") as new:
        names = old.keys()
        if set(names) != set(new.keys()):
            return float("inf")
        for name in names:
            before, after = old.get_tensor(name), new.get_tensor(name)
            if after.shape != before.shape or after.dtype != before.dtype:
                return float("inf")
            expected = before.astype(np.float64) + (total if np.issubdtype(before.dtype, np.floating) else 0.0)
            largest = max(largest, float(np.max(np.abs(after - expected), initial=0.0)))
    return largest


def _new_run(work: Path) -> Workdir:
    with writing(work):
        work.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = work.resolve() / f"bench-{number}"
            if not folder.exists():
                folder.mkdir()
                break
    run = Workdir(folder)
    run.make()
    return run


def _federation(run: Workdir, silos: int, rounds: int) -> Federation:
    spec = FederationSpec(
        rounds=rounds,
        task=Classification(classes=tuple(map(str, range(CLASSES)))),
        model=ModelSpec(network="ResNet18ImageNet", image_size=224, initial=INITIAL),
        method=MethodSpec(name="FedAvg"),
        protocol=Protocol(min_silos=silos),
        tracking=Tracking(uri=run.tracking_uri),
    )
    return Federation(metadata=FederationMetadata(name="bench"), spec=spec)


def _names(silos: int) -> list[str]:
    return [f"silo-{index:04d}" for index in range(silos)]


def _agent(index: int, name: str) -> LocalSilo:
    trainer = {"type": "Null", "step": f"{STEP * (index + 1):f}", "samples": SAMPLES * (index + 1)}
    return LocalSilo(name, {"labels": "All", "trainer": trainer})

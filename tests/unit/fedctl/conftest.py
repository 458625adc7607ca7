"""No test of the command line meets a cluster by accident: `cluster_api` is an API server of the kubeconfig, and `killed_run` an interrupted run."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_api.server import FakeApi
from left_run import DOCUMENTS, condition, leave, record

from anchorage.api.status import (
    CheckpointStatus,
    FederationStatus,
    Metric,
    SiloStatus,
    timestamp,
)
from anchorage.methods import validate_study
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import write_safetensors
from fedctl.local_run import claim
from fedctl.workdir import Workdir


@pytest.fixture(autouse=True)
def no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))


@pytest.fixture
def cluster_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.chdir(tmp_path)
    api = FakeApi().start()
    api.page = 2  # so that every test turns pages
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
    yield api
    api.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(DOCUMENTS)
    return path


@pytest.fixture
def killed_run(tmp_path: Path, file: Path) -> Workdir:
    """Give a run that was interrupted after round 2: its documents, journal, checkpoint and status."""
    run = Workdir(tmp_path / "run")
    run.make()
    claim(run, validate_study(file))
    layout = Layout.of([("w", "F32", (3,)), ("n", "I64", ())])
    model = ModelBytes.from_arrays(layout, {"w": np.arange(3, dtype=np.float32), "n": np.array(7)})
    checkpoint = run.server / "round-000002.safetensors"
    write_safetensors(checkpoint, model, arrays={"method_state/x": np.ones(2)}, metadata={"round": "2"})
    status = FederationStatus(
        conditions=(condition("Ready", "False"), condition("Succeeded", "Unknown"), condition("Failed", "False")),
        round=2,
        rounds=4,
        progress_percentage=50,
        connected_silos=2,
        silos=(SiloStatus(name="a", connected=True, samples=718), SiloStatus(name="b", code="ANC-3004", message="NaN")),
        metrics=(Metric(name="accuracy", value="0.75"),),
        last_checkpoint=CheckpointStatus(round=2, path=str(checkpoint), digest=model.digest, time=timestamp(1.8e9)),
        last_updated_time=timestamp(1.8e9),
    )
    leave(run, status)
    run.journal.write_text("".join(json.dumps(record(number)) + "\n" for number in range(3)) + '{"round": 3, "dig')
    return run

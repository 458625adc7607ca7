"""Every preset gives, round by round, the model bytes of the commit that recorded them (tests/golden/README.md), over gRPC as in simulation."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from federation_over_grpc import digest_over_grpc

from anchorage.api.files import Study
from anchorage.methods import PRESETS, validate_study

pytest.importorskip("torch")
pytest.importorskip("sklearn")

import torch

from anchorage.simulation.run import Simulation
from anchorage.simulation.speeds import parse_speeds

GOLDEN = Path(__file__).parents[1] / "golden"
FEDERATIONS: Mapping[str, Any] = yaml.safe_load((GOLDEN / "federations.yaml").read_text())
TABLE = GOLDEN / "digests.json"
REWRITE = "ANCHORAGE_REWRITE_GOLDEN"

MODEL = {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"}
POOL = {"format": "Digits", "testPercent": 20, "anchors": 20}
PARTITION = {"recipe": "PerClass", "parts": 60, "alpha": "0.7", "minSize": 8}
SYNCHRONOUS = {"rounds": 3, "protocol": {"mode": "Synchronous"}}
ASYNCHRONOUS = {"rounds": 9, "protocol": {"mode": "Asynchronous"}}
SPEEDS = ["a=0.04", "b=0.06+0.05", "c=0.03+0.1"]


def documents(federation: Mapping[str, Any]) -> str:
    """Write a federation and its silos, of 32, 15, 42 and 16 images of very different classes, as YAML."""
    spec = (ASYNCHRONOUS if "asynchronous" in federation else SYNCHRONOUS) | federation["spec"]
    spec["task"] = {"classification": {"classes": list("0123456789")}}
    spec["model"] = MODEL | spec.get("model", {})
    if "anchors" in federation:
        spec["anchorData"] = POOL | {"use": "Anchors"}
    if "evaluated" in federation:
        spec["evaluation"] = {"validation": POOL | {"use": "Test"}} | spec.get("evaluation", {})
    written = [{"kind": "Federation", "metadata": {"name": "golden"}, "spec": spec}]
    partition = federation.get("partition", PARTITION)
    for part, labels in enumerate(federation["labels"].split()):
        data: dict[str, Any] = POOL | {"use": "Part", "partition": partition | {"part": part}}
        if labels == "Partial":
            data["labelledPercent"] = 50
        silo = {"federation": "golden", "labels": labels, "managed": {"data": data}}
        written.append({"kind": "Silo", "metadata": {"name": "abcde"[part]}, "spec": silo})
    return yaml.safe_dump_all(written, sort_keys=False)


def written(federation: Mapping[str, Any], folder: Path) -> Study:
    folder.mkdir(exist_ok=True)
    (folder / "federation.yaml").write_text(documents(federation))
    return validate_study(folder / "federation.yaml")


def played(federation: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Play a federation; return the digests of all rounds and, where they do not show it, what was learnt in the last."""
    study = written(federation, folder)
    speeds = parse_speeds(SPEEDS) if "asynchronous" in federation else None
    simulation = Simulation(study, folder, folder / "state", speeds=speeds)
    last = simulation.play()
    result: dict[str, Any] = {"digests": [record.digest for record in simulation.store.history()]}
    if "evaluated" in federation:
        result["accuracy"] = last.metrics["accuracy"]
    if last.digest == result["digests"][0]:  # SOLO: silos keep their models
        result["losses"] = [silo.metrics["loss"] for silo in last.silos]
    return result


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def canary() -> str:
    """Train a small network by torch, calculate by numpy, and return the digest: another one means sums in another order, or other last digits."""
    nn = torch.nn
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        layers = [nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        layers += [nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)]
        network = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        images, labels = torch.randn(16, 1, 8, 8), torch.arange(16) % 10
        for _ in range(5):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(images), labels).backward()
            optimiser.step()
        weights = [value.detach().contiguous().numpy().tobytes() for value in network.state_dict().values()]
    points = np.linspace(0.01, 3.0, 97)
    values = [function(points) for function in (np.exp, np.log, np.tanh, np.sqrt, np.sin)]
    matrix = np.cos(np.outer(points, points)) + 97 * np.eye(97)
    values += [matrix @ matrix, np.linalg.solve(matrix, points), np.linalg.eigvalsh(matrix)]
    return hashlib.sha256(b"".join([*weights, *(value.tobytes() for value in values)])).hexdigest()


def arithmetic() -> dict[str, str]:
    capability = torch.backends.cpu.get_cpu_capability()
    return {"canary": canary(), "torch": torch.__version__, "vector instructions": capability}


@pytest.fixture(scope="module")
def table() -> dict[str, Any] | str:
    """Give the recorded digests, or why they cannot be compared; where they are recorded, those of the same arithmetic."""
    recorded, here = json.loads(TABLE.read_text()), arithmetic()
    if recorded["arithmetic"]["canary"] == here["canary"]:
        return recorded
    if os.environ.get(REWRITE):
        return {"arithmetic": here, "federations": {}}
    return (
        f"the digests were recorded with other arithmetic ({recorded['arithmetic']}, here {here}); "
        f"record them here on the commit before a change: {REWRITE}=1, see tests/golden/README.md"
    )


def record(table: dict[str, Any], name: str, result: dict[str, Any]) -> None:
    assert "PYTEST_XDIST_WORKER" not in os.environ, "processes beside each other would overwrite what others record"
    digests = result["digests"]
    assert digests[-1] != digests[0] or name == "SOLO", "a federation whose model never moves shows nothing"
    results = {**table["federations"], name: result}
    table["federations"] = {each: results[each] for each in FEDERATIONS if each in results}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


LINKED = sorted(n for n, each in FEDERATIONS.items() if n in PRESETS or "batchNorm" in each["spec"]["method"])
"""Federations that are played over gRPC as well."""


@pytest.mark.parametrize("name", FEDERATIONS)
def test_every_round_has_the_recorded_digest(name: str, table: dict[str, Any] | str, tmp_path: Path) -> None:
    federation = FEDERATIONS[name]
    result = played(federation, tmp_path)
    if name in LINKED and "asynchronous" not in federation:
        assert digest_over_grpc(written(federation, tmp_path / "link"), tmp_path / "link") == result["digests"][-1]
    if isinstance(table, str):
        pytest.skip(table)
    if os.environ.get(REWRITE):
        record(table, name, result)
    assert result == table["federations"][name]


@pytest.mark.parametrize("name", [name for name in LINKED if "asynchronous" in FEDERATIONS[name]])
def test_what_has_no_rounds_reaches_its_last_commit_over_grpc(name: str, tmp_path: Path) -> None:
    assert len(digest_over_grpc(written(FEDERATIONS[name], tmp_path), tmp_path)) == 64


ROBUST: Mapping[str, Any] = {
    "median": {"name": "FedAvg", "weighting": {"uniform": {}}, "aggregation": {"median": {}}},
    "trimmedMean": {"name": "FedAvgM", "weighting": {"uniform": {}}, "aggregation": {"trimmedMean": {}}},
    "multiKrum": {"name": "FedAvg", "weighting": {"uniform": {}}, "aggregation": {"multiKrum": {}}},
    "normBounding": {"name": "SyncDVW", "aggregation": {"normBounding": {}}},
    "zeno": {"name": "FedAvg", "weighting": {"uniform": {}}, "aggregation": {"zeno": {}}},
}


@pytest.mark.parametrize("name", ROBUST)
def test_a_robust_aggregation_gives_the_same_model_over_grpc(name: str, tmp_path: Path) -> None:
    method = ROBUST[name] | {"local": {"epochs": 1}}
    spec = {"rounds": 2, "protocol": {"minSilos": 5}, "method": method}
    federation = {"labels": "All All Partial All All", "spec": spec, "evaluated": True}
    digests = played(federation, tmp_path)["digests"]
    assert len({*digests}) == 3
    assert digest_over_grpc(written(federation, tmp_path / "link"), tmp_path / "link") == digests[-1]


RECEIVED_LABELS = {"receivedModel": {"threshold": "0.2"}}
STAGED: Mapping[str, Any] = {
    "before": {
        "warmUp": [{"method": "MomentsHead", "rounds": 1, "set": ["serverTraining.moments.head=Total"]}],
        "method": {"name": "SemiFL", "mixup": {"none": {}}, "local": {"epochs": 1}, "pseudoLabels": RECEIVED_LABELS},
    },
    "after": {"warmUp": [{"method": "FedBYOL", "rounds": 1}], "method": {"name": "SharesHead"}},
}


@pytest.mark.parametrize("place", STAGED)
def test_a_stage_in_which_no_silo_trains_gives_the_same_model_over_grpc(place: str, tmp_path: Path) -> None:
    """The encoder is frozen there, before stages that train it and after them."""
    federation = {"labels": "None None None", "anchors": True, "evaluated": True, "spec": STAGED[place]}
    digests = played(federation, tmp_path)["digests"]
    assert len({*digests}) == 4
    assert digest_over_grpc(written(federation, tmp_path / "link"), tmp_path / "link") == digests[-1]


def test_every_preset_is_played_and_nothing_else_is_recorded() -> None:
    assert PRESETS.keys() <= FEDERATIONS.keys()
    for name in PRESETS:
        spec = FEDERATIONS[name]["spec"]
        assert name in {spec["method"]["name"], *(stage["method"] for stage in spec.get("warmUp", []))}
    if not os.environ.get(REWRITE):  # then the table is only whole in the end
        assert json.loads(TABLE.read_text())["federations"].keys() == FEDERATIONS.keys()

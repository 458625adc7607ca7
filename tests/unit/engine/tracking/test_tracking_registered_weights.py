"""Runs that start from a registered model: what MLflow holds, pulled once at the coordinating site, and everything else refused."""

import hashlib
import json
import pickle
import shutil
import socket
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
import yaml
from mlflow.tracking import MlflowClient
from safetensors.torch import load_file, save_file
from torchvision.models import get_model
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import WEIGHTS_UNUSABLE
from anchorage.api.federation import Federation
from anchorage.engine.tracking import Outbox, TrackedRun
from anchorage.engine.tracking.sender import Sending
from anchorage.learning.learners import build_server_learner
from anchorage.methods import resolve, validate_study
from anchorage.methods.pretrained import WeightsFolder, initial_of, initial_source
from anchorage.pieces.task.classification import Classification
from anchorage.simulation.run import Simulation, simulate
from fedctl.main import app

GOLDEN = Path(__file__).parents[3] / "golden" / "model"
NAME = "models:/digits@final"
PART = "{format: Digits, use: Part, testPercent: 10, partition: {recipe: Iid, parts: 14, part: 0}}"
DOCUMENTS = f"""
kind: Federation
metadata: {{name: tiny}}
spec:
  rounds: 1
  task: {{classification: {{classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}}}
  model: {{network: SmallCnn, imageSize: 8, channels: 1, augmentation: Digits, weights: "{NAME}"}}
  method: {{name: FedAvg, local: {{epochs: 1, batchSize: 16}}}}
  evaluation: {{validation: {{format: Digits, use: Test, testPercent: 10}}}}
---
kind: Silo
metadata: {{name: a}}
spec: {{federation: tiny, labels: All, managed: {{data: {PART}}}}}
"""


def fedctl(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def pull(folder: Path, uri: str, name: str = NAME, network: str = "SmallCnn") -> dict[str, Any]:
    result = fedctl("weights", "pull", network, name, "--tracking-uri", uri, "--data-root", folder, "-o", "json")
    if result.exception is not None:
        raise result.exception
    entry: dict[str, Any] = json.loads(result.stdout)
    return entry


def version_of(uri: str, folder: Path, name: str = "own", alias: str = "") -> str:
    """Register a folder as it is."""
    client = MlflowClient(uri)
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    version = str(client.create_model_version(name, folder.as_uri()).version)
    if alias:
        client.set_registered_model_alias(name, alias, version)
    return version


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(DOCUMENTS)
    return path


@pytest.mark.integration
def test_a_model_that_a_run_registered_is_what_the_next_one_starts_from(tmp_path: Path, uri: str, file: Path) -> None:
    models = Path(shutil.copytree(GOLDEN, tmp_path / "model", ignore=shutil.ignore_patterns("images")))
    described = json.loads((models / "model.json").read_text())
    (models / "model.json").write_text(json.dumps({**described, "best": described["final"]}))
    names = {"federation": "digits", "experiment": "digits", "registered_model": "digits"}
    task = Classification(classes=tuple(described["classes"]))
    run = TrackedRun(Outbox(tmp_path / "out"), **names, rounds=3, task=task, parameters={}, document="")
    run.finish("", models)
    Sending(tmp_path / "out", uri).send_all()
    entry = pull(tmp_path, uri)
    digest = hashlib.sha256((GOLDEN / "model.safetensors").read_bytes()).hexdigest()
    source = "models:/digits/1 in mlflow.db"
    assert entry == {"network": "SmallCnn", "name": NAME, "source": source, "digest": digest}
    study = validate_study(file)
    assert initial_of(study.federation.spec, tmp_path) == tmp_path / "weights" / f"{digest}.safetensors"
    record, store = simulate(study, tmp_path, tmp_path / "alone")
    assert store.history()[0].metrics["accuracy"] > 0.85
    result = fedctl("simulate", "-f", file, "--workdir", tmp_path / "work", "--device", "cpu", "-o", "json")
    (seed,) = json.loads(result.stdout)["seeds"]
    assert seed["digest"] == record.digest
    (card,) = (tmp_path / "work").rglob("model-card.json")
    assert json.loads(card.read_text())["initial"] == f"{NAME} of SmallCnn from {source} (SHA-256 {digest})"


def test_an_alias_is_the_version_that_it_was_when_pulled(tmp_path: Path, uri: str) -> None:
    for value in (1.0, 2.0):
        folder = tmp_path / f"version-{value}"
        folder.mkdir()
        save_file({"encoder.x": torch.full((2,), value)}, folder / "any.safetensors")
        version_of(uri, folder, alias="best")
        if value == 1.0:
            assert pull(tmp_path, uri, "models:/own@best")["source"] == "models:/own/1 in mlflow.db"
    folder = WeightsFolder(tmp_path)
    by_alias_entry = folder.find("SmallCnn", "models:/own@best")
    assert (
        by_alias_entry.source == "models:/own/1 in mlflow.db"
        and load_file(folder.verify(by_alias_entry))["encoder.x"][0] == 1
    )
    first, by_alias = pull(tmp_path, uri, "models:/own/1"), pull(tmp_path, uri, "models:/own@best")
    assert (
        first["digest"] == by_alias_entry.digest != by_alias["digest"]
        and by_alias["source"] == "models:/own/2 in mlflow.db"
    )
    assert sorted(entry.name for entry in folder.entries()) == ["models:/own/1", "models:/own@best"]
    listed = json.loads(fedctl("weights", "list", "--data-root", tmp_path, "-o", "json").stdout)
    assert {entry["source"] for entry in listed} == {first["source"], by_alias["source"]}
    assert len(list(folder.folder.glob("*.safetensors"))) == 2


def test_a_librarys_weights_that_were_registered_are_a_start_too(tmp_path: Path, uri: str) -> None:
    torch.manual_seed(1)
    state = get_model("mobilenet_v3_small", weights=None).state_dict()
    inner = tmp_path / "held" / "data"
    inner.mkdir(parents=True)
    save_file(state, inner / "weights.safetensors")
    version_of(uri, tmp_path / "held")
    network, name = "torchvision/mobilenet_v3_small", "models:/own/1"
    pull(tmp_path, uri, name, network)
    model = {"network": network, "imageSize": 32, "weights": name}
    task = {"classification": {"classes": ["a", "b"]}}
    document = {"rounds": 1, "task": task, "model": model, "method": {"name": "FedAvg"}}
    spec = Federation.model_validate({"kind": "Federation", "metadata": {"name": "f"}, "spec": document}).spec
    learner = build_server_learner(
        model=spec.model_description, method=resolve(spec.method), seed=1, initial=initial_of(spec, tmp_path)
    )
    weights = learner.initialise().arrays()["encoder.network.features.0.0.weight"]
    assert torch.equal(torch.from_numpy(weights.copy()), state["features.0.0.weight"])
    assert initial_source(spec, tmp_path).startswith(f"{name} of {network} from models:/own/1 in mlflow.db (SHA-256 ")


class Armed:
    """What a pickle runs when it is read."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("a pickle was read",)


def write_held(kind: str, folder: Path) -> None:
    folder.mkdir()
    if kind == "pickle":
        (folder / "model.pkl").write_bytes(pickle.dumps(Armed()))
    elif kind == "pickle by another name":
        (folder / "model.safetensors").write_bytes(pickle.dumps(Armed()))
    elif kind == "two":
        for name in "ab":
            save_file({"x": torch.ones(1)}, folder / f"{name}.safetensors")
    elif kind == "many":
        for number in range(1001):
            (folder / str(number)).touch()
    elif kind != "empty":
        shutil.copytree(GOLDEN, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("images"))
        described = json.loads((folder / "model.json").read_text())
        if kind == "other network":
            described["network"] = "ResNet18"
        else:
            described["final"]["digest"] = "0" * 64
        (folder / "model.json").write_text(json.dumps(described))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "pickle",
            r"models:/own/1 in mlflow.db holds no safetensors file \(model.pkl\).*pickles are never read.*import FILE",
        ),
        ("pickle by another name", "model.safetensors: it does not start with a header of the safetensors format"),
        ("two", r"holds 2 safetensors files \(a.safetensors, b.safetensors\), needed is one"),
        ("many", "has more than 1000 files"),
        ("empty", r"holds no safetensors file \(nothing\)"),
        ("other network", "models:/own/1 in mlflow.db is a ResNet18, not a SmallCnn"),
        ("other bytes", "model.safetensors is not as model.json says"),
    ],
)
def test_what_is_no_start_is_refused_and_leaves_nothing(tmp_path: Path, uri: str, kind: str, expected: str) -> None:
    write_held(kind, tmp_path / "held")
    version_of(uri, tmp_path / "held")
    with pytest.raises(AnchorageError, match=expected) as caught:
        pull(tmp_path, uri, "models:/own/1")
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "weights").exists()


def test_a_model_that_mlflow_pickled_is_refused(tmp_path: Path, uri: str) -> None:
    mlflow.set_tracking_uri(uri)

    class Told(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
        def predict(self, model_input: list[str]) -> list[str]:
            return model_input

    experiment = MlflowClient(uri).create_experiment("e", artifact_location=(tmp_path / "artifacts").as_uri())
    with mlflow.start_run(experiment_id=experiment):
        mlflow.pyfunc.log_model(name="m", python_model=Told(), registered_model_name="own", pip_requirements=[])
    with pytest.raises(AnchorageError, match="holds no safetensors file .*python_model.pkl") as caught:
        pull(tmp_path, uri, "models:/own/1")
    assert caught.value.failure is WEIGHTS_UNUSABLE


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("models:/own/7", "models:/own/7 in mlflow.db cannot be fetched: Model Version .* not found"),
        ("models:/own@none", "models:/own@none in mlflow.db cannot be fetched: Registered model alias none not found"),
        ("models:/none@best", "cannot be fetched: Registered Model with name=none not found"),
        ("models:/own/Production", "found the name 'models:/own/Production', expected a name such as"),
        ("models:/own", "expected a name such as"),
        ("models:/../own/1", "expected a name such as"),
    ],
)
def test_what_mlflow_has_not_is_said(tmp_path: Path, uri: str, name: str, expected: str) -> None:
    MlflowClient(uri).create_registered_model("own")
    with pytest.raises(AnchorageError, match=expected) as caught:
        pull(tmp_path, uri, name)
    assert caught.value.failure is WEIGHTS_UNUSABLE and not (tmp_path / "weights").exists()


def test_an_mlflow_that_is_not_there_is_said_and_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(AnchorageError, match="say which MLflow has it: --tracking-uri"):
        result = fedctl("weights", "pull", "SmallCnn", NAME, "--data-root", tmp_path)
        raise result.exception or AssertionError(result.output)
    with pytest.raises(AnchorageError, match=r"there is no store .*none\.db"):
        pull(tmp_path, f"sqlite:///{tmp_path / 'none.db'}")
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        address = f"127.0.0.1:{occupied.getsockname()[1]}"
        with pytest.raises(
            AnchorageError, match=f"{NAME} in http://…@{address} cannot be fetched: API request"
        ) as caught:
            pull(tmp_path, f"http://user:secret@{address}")
    assert "secret" not in str(caught.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["simulate", "run"])
def test_a_start_that_was_not_pulled_ends_the_command_before_anything_starts(
    tmp_path: Path, file: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = fedctl(command, "-f", file, "--workdir", tmp_path / "work")
    assert isinstance(result.exception, AnchorageError) and result.exception.failure is WEIGHTS_UNUSABLE
    wanted = f"fedctl weights pull SmallCnn {NAME} --data-root .* --tracking-uri URI"
    with pytest.raises(AnchorageError, match=wanted):
        raise result.exception
    assert not list((tmp_path / "work").rglob("journal.jsonl"))


def test_a_simulation_begins_anew_from_other_weights_of_the_same_name(tmp_path: Path, file: Path) -> None:
    documents = list(yaml.safe_load_all(DOCUMENTS))
    documents[0]["spec"]["model"]["weights"] = "v"
    file.write_text(yaml.safe_dump_all(documents))
    study, folder = validate_study(file), WeightsFolder(tmp_path)
    folder.add(GOLDEN / "model.safetensors", "SmallCnn", "v", "first")
    first = Simulation(study, tmp_path, tmp_path / "state", resume=True).play()
    same = Simulation(study, tmp_path, tmp_path / "state", resume=True)
    latest = same.store.latest()
    assert latest is not None and latest.record.digest == first.digest
    same.store.close()
    arrays = load_file(GOLDEN / "model.safetensors")
    save_file({**arrays, "classifier.bias": arrays["classifier.bias"] + 1}, tmp_path / "other.safetensors")
    folder.add(tmp_path / "other.safetensors", "SmallCnn", "v", "second")
    resumed = Simulation(study, tmp_path, tmp_path / "state", resume=True)
    assert resumed.store.latest() is None
    resumed.store.close()

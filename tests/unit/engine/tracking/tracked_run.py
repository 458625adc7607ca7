"""A run as the server tracks it, for tests."""

import json
from pathlib import Path

import mlflow
import numpy as np
from mlflow.tracking import MlflowClient

from anchorage.algorithms.assessment import assess
from anchorage.api.inference import describe
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.model_card import ModelCard, TrainedModel
from anchorage.api.run import RunDescription
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.engine.tracking import Outbox, TrackedRun
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.weights import layout_of
from anchorage.methods import resolve, validate_study
from anchorage.methods.model_card import make_card, write_card
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Report
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import write_safetensors

NOTHING = ModelBytes(Layout(()), [])


STUDY = validate_study(Path(__file__).parents[4] / "examples" / "digits.yaml")


MODEL = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b", "c")), image_size=8, channels=1)


METHOD = resolve(MethodSpec(name="FedAvg"))


DESCRIBED = RunDescription(
    federation="digits", seed=1, model=MODEL, method=METHOD, down="{}", up="{}", rounds=3, mode="Synchronous"
)


REPORT = Report(
    {"accuracy": 0.5},
    {"confusion": np.eye(3, dtype=np.int64)},
    np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32),
)


def start(folder: Path, rounds: int = 3) -> TrackedRun:
    return TrackedRun(
        Outbox(folder),
        federation="derm",
        experiment="study",
        registered_model="derm-model",
        rounds=rounds,
        task=MODEL.task,
        parameters={"method": {"name": "FedAvg"}, "long": "x" * 9000},
        document="kind: Federation\n",
        name="derm FedAvg seed 1",
        about="FedAvg on SmallCnn: 3 rounds, 3 classes, seed 1.",
        tags={"anchorage.method": "FedAvg"},
        images={"anchors": {"digest": "a" * 64, "classes": {"a": 2, "b": 1}, "unlabelled": 4}},
    )


def record_of(number: int) -> RoundRecord:
    metrics = {"loss": 1.0 / (1 + number), "held_out_accuracy": 0.25}
    silo = SiloRecord("a", "Counted", 1.0, {"train": 30}, metrics, fingerprint="f" * 64)
    return RoundRecord(number, f"{number:064d}", 1.7e9 + number, {"accuracy": number / 10}, (silo,))


def card() -> ModelCard:
    """Scores of three classes, of which the third has no images."""
    labels = np.array([0, 0, 1, 1])
    probabilities = np.array([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.2, 0.7, 0.1], [0.4, 0.5, 0.1]])
    scored = assess("validation", ("a", "b$", "c"), labels, probabilities, np.random.default_rng(0))
    models = [
        TrainedModel(file=f"{role}.safetensors", digest=role, round=3, assessment=scored) for role in ("final", "best")
    ]
    return make_card(STUDY, DESCRIBED, [record_of(3)], {}, final=models[0], best=models[1], classifier_trained=True)


def write_models(folder: Path) -> Path:
    """What the server writes at the end of a run (`final` and `best` are different models)."""
    folder.mkdir()
    values = describe(MODEL, "derm", classifier_trained=True)
    for role, seed in (("final", 1), ("best", 2)):
        network = build_model(MODEL, TrainingMethod.of(METHOD), seed)
        arrays = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
        model = ModelBytes.from_arrays(layout_of(network), arrays)
        write_safetensors(folder / f"{role}.safetensors", model)
        values[role] = {
            "file": f"{role}.safetensors",
            "round": seed,
            "digest": model.digest,
            "time": 0.0,
            "metrics": {},
        }
    (folder / "model.json").write_text(json.dumps(values))
    write_card(folder, card())
    return folder


def only_run(uri: str) -> mlflow.entities.Run:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("study")
    (run,) = client.search_runs([experiment.experiment_id])
    return run

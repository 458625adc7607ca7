"""The sender with a real SQLite store, with one that is down, killed and started again; models loaded back from the registry."""

import json
import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import psutil
import pytest
from mlflow.store.db import utils as db_utils
from mlflow.store.tracking.dbmodels.initial_models import Base as InitialBase
from mlflow.tracking import MlflowClient

from anchorage.api.errors.tracking import TRACKING_INCOMPLETE, TRACKING_UNREACHABLE
from anchorage.api.inference import describe
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.model_card import ModelCard, TrainedModel
from anchorage.api.run import RunDescription
from anchorage.engine.events import RoundCommitted
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.engine.tracking import Outbox, Sender, TrackedRun
from anchorage.engine.tracking.figures import confusion, embeddings, principal_plane
from anchorage.engine.tracking.headline import headline
from anchorage.engine.tracking.mlflow_run import KEY_TAG, RESULTS, MlflowRun
from anchorage.engine.tracking.process import what_is_sent
from anchorage.engine.tracking.sender import Sending, first_line
from anchorage.learning.assessment import assess
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
STUDY = validate_study(Path(__file__).parents[3] / "examples" / "digits.yaml")
MODEL = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b", "c")), image_size=8, channels=1)
METHOD = resolve(MethodSpec(name="FedAvg"))
DESCRIBED = RunDescription(
    federation="digits", seed=1, model=MODEL, method=METHOD, down="{}", up="{}", rounds=3, mode="Synchronous"
)
REPORT = Report(
    {"accuracy": 0.5}, np.eye(3, dtype=np.int64), np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory) -> Path:
    """A store without experiments; making its tables takes seconds."""
    path: Path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(tmp_path, empty_store) -> str:
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def start(folder: Path, rounds: int = 3) -> TrackedRun:
    return TrackedRun(
        Outbox(folder),
        federation="derm",
        experiment="study",
        registered_model="derm-model",
        rounds=rounds,
        classes=("a", "b", "c"),
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


def test_what_an_earlier_version_wrote_down_is_sent(tmp_path, uri):
    outbox = Outbox(tmp_path / "outbox")
    run = {
        "federation": "derm",
        "experiment": "study",
        "registeredModel": "derm-model",
        "key": "k",
        "classes": ["a", "b"],
    }
    outbox.append("run", {**run, "parameters": {"seed": "1"}, "document": "kind: Federation"})
    outbox.append("round", {"round": 1, "time": 2.0, "digest": "d", "metrics": {"accuracy": 0.5}})
    Sending(tmp_path / "outbox", uri).send_all()
    found = only_run(uri)
    assert (found.info.run_name, found.data.metrics["accuracy"]) == ("derm", 0.5)


@pytest.mark.slow
def test_a_whole_run_reaches_mlflow_and_its_models_answer(tmp_path, uri):
    run = start(tmp_path / "outbox")
    sender = Sender(tmp_path / "outbox", uri)
    for number in range(4):
        run(RoundCommitted(record_of(number), NOTHING, REPORT))
    run.finish("", write_models(tmp_path / "model"))
    sent = sender.finish()
    assert sent.missing is None
    found = only_run(uri)
    assert found.info.run_id == sent.run_id
    assert found.info.status == "FINISHED"
    assert found.data.params["method.name"] == "FedAvg"
    assert len(found.data.params["long"]) == 6000
    client = MlflowClient(uri)
    history = client.get_metric_history(sent.run_id, "silo/a/loss")
    assert [(m.step, m.value) for m in history] == [(n, 1.0 / (1 + n)) for n in range(4)]
    drawn = [f"figures/rounds/{kind}-{n:06d}.png" for kind in ("confusion", "embeddings") for n in range(4)]
    assert [f.path for f in client.list_artifacts(sent.run_id, "figures/rounds")] == drawn
    for role in ("final", "best"):
        drawn = [f"figures/{role}/{kind}.png" for kind in ("confusion", "reliability", "roc")]
        assert [f.path for f in client.list_artifacts(sent.run_id, f"figures/{role}")] == drawn
    assert (tmp_path / "mlartifacts").is_dir()
    assert list((tmp_path / "outbox").glob("*.npy")) == []
    assert sent.model_version != sent.best_model_version
    version = client.get_model_version("derm-model", sent.model_version)
    described = json.loads((tmp_path / "model" / "model.json").read_text())
    assert version.tags["anchorage.digest"] == described["final"]["digest"]
    assert (version.tags["anchorage.federation"], version.tags["anchorage.round"]) == ("derm", "1")
    check_answers(uri)
    assert {f.path for f in client.list_artifacts(sent.run_id)} >= {"model-card.json", "model-card.md"}
    for role in ("final", "best"):
        with_card = Path(
            mlflow.artifacts.download_artifacts(f"models:/derm-model@{role}", dst_path=str(tmp_path / role))
        )
        assert (with_card / "artifacts" / "model-card.md").read_text().startswith("# Model card: digits\n")
        assert json.loads((with_card / "artifacts" / "model-card.json").read_text())["federation"] == "digits"
    (tmp_path / "model" / "model-card.md").write_text("# completed\n")
    Outbox(tmp_path / "outbox").append("card", {"models": str(tmp_path / "model")})
    assert Sender(tmp_path / "outbox", uri).finish().missing is None
    places = {role: f"models:/derm-model@{role}/artifacts/model-card.md" for role in ("final", "best")}
    for role, place in {**places, "run": f"runs:/{sent.run_id}/model-card.md"}.items():
        text = mlflow.artifacts.download_artifacts(place, dst_path=str(tmp_path / f"again-{role}"))
        assert Path(text).read_text() == "# completed\n", role
    assert only_run(uri).info.status == "FINISHED"


def check_answers(uri: str) -> None:
    images = pd.DataFrame({"image": list(np.random.default_rng(0).integers(0, 256, (5, 30, 40, 3), np.uint8))})
    mlflow.set_tracking_uri(uri)
    answers = [mlflow.pyfunc.load_model(f"models:/derm-model@{role}").predict(images) for role in ("final", "best")]
    for answer in answers:
        assert list(answer.columns) == ["class", "probabilities"] and len(answer) == 5
        for told, probabilities in zip(answer["class"], answer["probabilities"], strict=True):
            assert list(probabilities) == ["a", "b", "c"] and told == max(probabilities, key=probabilities.get)
            np.testing.assert_allclose(sum(probabilities.values()), 1, rtol=1e-5)
    assert not answers[0].equals(answers[1])
    info = mlflow.models.get_model_info("models:/derm-model@final")
    assert [p.name for p in info.signature.outputs.inputs[1].type.properties] == ["a", "b", "c"]
    assert info.saved_input_example_info is not None


def test_a_sender_that_stops_anywhere_sends_nothing_twice(tmp_path, uri):
    folder = tmp_path / "outbox"
    run = start(folder)
    run(RoundCommitted(record_of(0), NOTHING, None))
    Sending(folder, uri).send_all()
    run(RoundCommitted(record_of(1), NOTHING, None))
    Sending(folder, uri).send_all()  # another process
    (folder / "sender.json").unlink()  # killed before it could write down that it created the run
    Sending(folder, uri).send_all()
    found = only_run(uri)
    assert found.info.status == "RUNNING"
    assert found.data.metrics["accuracy"] == 0.1
    assert found.data.tags[KEY_TAG]


def test_a_store_whose_making_was_cut_off_is_made_again(tmp_path, monkeypatch):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    event = {"experiment": "e", "key": "k", "federation": "f", "registeredModel": "m", "classes": ["a", "b"]}
    tables = db_utils._initialize_tables

    def cut_off(engine):
        InitialBase.metadata.create_all(engine)
        raise KeyboardInterrupt

    monkeypatch.setattr(db_utils, "_initialize_tables", cut_off)
    with pytest.raises(KeyboardInterrupt):
        MlflowRun.open(uri, event)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(db_utils, "_initialize_tables", tables)
    run = MlflowRun.open(uri, event)
    assert MlflowRun.open(uri, event).run_id == run.run_id and [f.name for f in tmp_path.iterdir()] == ["mlflow.db"]


def test_a_store_is_made_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    event = {"experiment": "e", "key": "k", "federation": "f", "registeredModel": "m", "classes": ["a", "b"]}
    assert MlflowRun.open(f"sqlite:///{tmp_path / 'mlflow.db'}", event).run_id
    assert [file.name for file in tmp_path.iterdir()] == ["mlflow.db"]


def test_a_failed_run_says_why_and_can_go_on(tmp_path, uri):
    folder = tmp_path / "outbox"
    run = start(folder)
    run.finish("ANC-3001", None)
    Sending(folder, uri).send_all()
    found = only_run(uri)
    assert (found.info.status, found.data.tags["anchorage.code"]) == ("FAILED", "ANC-3001")
    again = start(folder)
    again(RoundCommitted(record_of(1), NOTHING, None))
    sending = Sending(folder, uri)
    sending.send_all()
    assert not sending.ended
    assert only_run(uri).info.status == "RUNNING"


def test_an_event_that_mlflow_refuses_does_not_hold_up_the_rest(tmp_path, uri, caplog):
    folder = tmp_path / "outbox"
    run = start(folder)
    broken = RoundRecord(1, "0" * 64, 1.7e9, {"not?allowed": 1.0})
    run(RoundCommitted(broken, NOTHING, None))
    run(RoundCommitted(record_of(2), NOTHING, None))
    Sending(folder, uri).send_all()
    assert only_run(uri).data.metrics["accuracy"] == 0.2
    assert "ANC-4002" in caplog.text


@pytest.mark.slow
def test_events_are_kept_while_the_tracking_server_is_down(tmp_path, uri):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        run = start(tmp_path / "outbox")
        sender = Sender(tmp_path / "outbox", f"http://127.0.0.1:{taken.getsockname()[1]}")
        run(RoundCommitted(record_of(1), NOTHING, REPORT))
        run.finish("", None)
        missing = sender.finish().missing
    assert missing is not None
    assert missing.failure is TRACKING_UNREACHABLE
    assert missing.message.startswith("3 records are not in MLflow yet: API request to http://127.0.0.1")
    assert len(list((tmp_path / "outbox").glob("*.npy"))) == 2
    sent = Sender(tmp_path / "outbox", uri).finish()
    assert (sent.missing, sent.model_version) == (None, "")
    assert only_run(uri).data.metrics["accuracy"] == 0.1


def test_another_store_gets_everything_again(tmp_path, uri, empty_store):
    folder = tmp_path / "outbox"
    run = start(folder)
    run(RoundCommitted(record_of(0), NOTHING, None))
    Sending(folder, uri).send_all()
    run(RoundCommitted(record_of(1), NOTHING, None))
    shutil.copyfile(empty_store, tmp_path / "other.db")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    Sending(folder, other).send_all()
    run_id = only_run(other).info.run_id
    assert [m.step for m in MlflowClient(other).get_metric_history(run_id, "accuracy")] == [0, 1]


def test_a_model_that_cannot_be_registered_is_told_and_made_up_for(tmp_path, uri):
    folder = tmp_path / "outbox"
    run = start(folder)
    run.finish("", tmp_path / "model")
    Sending(folder, uri).send_all()
    found = what_is_sent(folder, "").missing
    assert found is not None
    assert found.failure is TRACKING_INCOMPLETE
    assert found.message.startswith("MLflow does not have the final model: ")
    assert found.message.endswith("(and 1 more)")
    assert only_run(uri).info.status == "FINISHED"
    write_models(tmp_path / "model")
    run.finish("", tmp_path / "model")
    Sending(folder, uri).send_all()
    sent = what_is_sent(folder, "")
    assert (sent.missing, sent.registered_model, sent.model_version) == (None, "derm-model", "1")


def note(run: mlflow.entities.Run) -> str:
    return str(run.data.tags["mlflow.note.content"])


def test_a_run_says_what_it_is_and_then_its_scores(tmp_path, uri):
    folder = tmp_path / "outbox"
    run = start(folder)
    Sending(folder, uri).send_all()
    found = only_run(uri)
    assert (found.info.run_name, found.data.tags["anchorage.method"]) == ("derm FedAvg seed 1", "FedAvg")
    assert note(found) == "FedAvg on SmallCnn: 3 rounds, 3 classes, seed 1."
    experiment = MlflowClient(uri).get_experiment_by_name("study")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert "figures/final" in experiment.tags["mlflow.note.content"]
    run(RoundCommitted(record_of(3), NOTHING, None))
    run.finish("", None)
    Sending(folder, uri).send_all()
    found = only_run(uri)
    assert "| federation | 0.3000 |" in note(found) and "| a, own images | 0.2500 |" in note(found)
    assert "anchorage.code" not in found.data.tags
    place = mlflow.artifacts.download_artifacts(f"runs:/{found.info.run_id}/{RESULTS}", tracking_uri=uri)
    assert note(found) in Path(place).read_text()


def test_what_people_wrote_stays(tmp_path, uri):
    client, folder = MlflowClient(uri), tmp_path / "outbox"
    experiment = client.create_experiment(
        "study", tags={"mlflow.note.content": "ours", "mlflow.experimentKind": "classification"}
    )
    run = start(folder)
    Sending(folder, uri).send_all()
    client.set_tag(only_run(uri).info.run_id, "mlflow.note.content", "mine")
    run(RoundCommitted(record_of(3), NOTHING, None))
    run.finish("", None)
    Sending(folder, uri).send_all()
    assert note(only_run(uri)) == "mine"
    tags = client.get_experiment(experiment).tags
    assert (tags["mlflow.note.content"], tags["mlflow.experimentKind"]) == ("ours", "classification")


def test_datasets_have_digests_and_counts_once(tmp_path, uri):
    folder = tmp_path / "outbox"
    for number in (1, 2):
        start(folder)(RoundCommitted(record_of(number), NOTHING, None))
        Sending(folder, uri).send_all()
    (folder / "sender.json").unlink()
    Sending(folder, uri).send_all()
    inputs = only_run(uri).inputs.dataset_inputs
    told = {i.dataset.name: (i.dataset.digest, json.loads(i.dataset.profile), i.tags[0].value) for i in inputs}
    assert len(inputs) == 2
    assert told["anchors"] == ("a" * 16, {"images": {"a": 2, "b": 1, "without label": 4}}, "anchors")
    assert told["a"] == ("f" * 16, {"images": {"train": 30}}, "silo")
    assert {i.dataset.source for i in inputs} == {'{"federation": "derm"}'}


def test_a_card_completed_after_the_end_is_sent_with_its_scores(tmp_path, uri):
    folder, models = tmp_path / "outbox", tmp_path / "model"
    models.mkdir()
    write_card(models, card())
    run = start(folder)
    run(RoundCommitted(record_of(3), NOTHING, None))
    run.finish("", None)
    Sending(folder, uri).send_all()
    write_card(models, card().model_copy(update={"labels_alone": {"accuracy": 0.125}}))
    for _ in range(2):  # sent again, it says the same
        Outbox(folder).append("card", {"models": str(models)})
        sending = Sending(folder, uri)
        sending.send_all()
        assert sending.ended
    found = only_run(uri)
    assert found.info.status == "FINISHED" and "| labels alone | 0.1250 |" in note(found)
    history = MlflowClient(uri).get_metric_history(found.info.run_id, "validation/labels_alone/accuracy")
    assert {(m.step, m.value) for m in history} == {(3, 0.125)}


def test_a_card_of_another_format_is_left_out_and_told(tmp_path, uri):
    folder, models = tmp_path / "outbox", tmp_path / "model"
    models.mkdir()
    (models / "model-card.json").write_text('{"format": "other"}')
    start(folder)
    Outbox(folder).append("card", {"models": str(models)})
    Sending(folder, uri).send_all()
    missing = what_is_sent(folder, "").missing
    assert missing is not None and missing.failure is TRACKING_INCOMPLETE
    assert missing.message.startswith("MLflow does not have the model card's figures: it is no model card: ")


@pytest.mark.parametrize(
    ("metrics", "rows"),
    [
        ({}, []),
        ({"seconds/train": 1.0}, []),
        (
            {
                "accuracy": 0.1,
                "test/final/accuracy": 0.5,
                "test/best/accuracy": 0.5,
                "test/labels_alone/accuracy": 0.4,
                "test/supervised_bound/accuracy": 0.6,
            },
            ["federation | 0.5000", "labels alone | 0.4000", "supervised bound | 0.6000"],
        ),
        (
            {
                "accuracy": 0.5,
                "test/best/accuracy": 0.75,
                "silo/x/held_out_accuracy": 0.75,
                "silo/y/held_out_accuracy": 0.25,
            },
            ["federation | 0.5000", "best round | 0.7500", "y, own images | 0.2500", "x, own images | 0.7500"],
        ),
    ],
)
def test_the_headline_has_what_was_scored(metrics, rows):
    lines = headline(metrics).splitlines()
    assert [line.strip("| ") for line in lines[2:]] == rows


def test_the_headline_of_many_silos_has_the_worst():
    text = headline({f"silo/s{n}/held_out_accuracy": n / 100 for n in range(50)})
    assert "| s0, own images | 0.0000 |" in text and "s20," not in text
    assert text.endswith("and 30 silos with better scores")


class Throttle(threading.Thread):
    """Lets a process run for a hundredth of a processor's time: after each clock tick that it had, it is stopped for 99."""

    TICK = 1 / os.sysconf("SC_CLK_TCK")

    def __init__(self, pid: int, folder: Path) -> None:
        super().__init__(daemon=True)
        self._process, self._folder = psutil.Process(pid), folder
        self._over = threading.Event()
        self.ticks = self.stops = 0

    def run(self) -> None:
        try:
            while not self._over.wait(self.TICK):
                times = self._process.cpu_times()
                used = round((times.user + times.system) / self.TICK)
                if used > self.ticks and (self._folder / "sender.json").exists():
                    self._process.suspend()
                    self.stops += 1
                    self._over.wait(99 * self.TICK * min(used - self.ticks, 5) if self.ticks else 0)
                    self._process.resume()
                self.ticks = used
        except psutil.NoSuchProcess:
            pass

    def stop(self) -> None:
        self._over.set()
        self.join()


@pytest.mark.slow
def test_nothing_is_lost_where_the_sender_has_a_hundredth_of_a_processor(tmp_path, uri):
    """Loading MLflow, 4 s of processor time, is not slowed down: that would take minutes."""
    folder, rounds = tmp_path / "outbox", 2
    run = start(folder, rounds)
    for number in range(rounds):
        run(RoundCommitted(record_of(number), NOTHING, None))
    sender = Sender(folder, uri)
    throttle = Throttle(sender.pid, folder)
    throttle.start()
    sent = sender.finish(idle_seconds=60)
    throttle.stop()
    assert sent.missing is None
    assert throttle.stops > rounds
    history = MlflowClient(uri).get_metric_history(sent.run_id, "accuracy")
    assert [m.step for m in history] == list(range(rounds))
    run.finish("", None)
    assert Sender(folder, uri).finish().missing is None
    assert only_run(uri).info.status == "FINISHED"


@pytest.mark.slow
def test_a_sender_that_stands_still_is_given_up_and_another_one_sends_the_rest(tmp_path, uri):
    folder = tmp_path / "outbox"
    run = start(folder)
    sender = Sender(folder, uri)
    os.kill(sender.pid, signal.SIGSTOP)
    run.finish("", None)
    missing = sender.finish(idle_seconds=0.5).missing
    assert missing is not None
    assert str(missing) == (
        "ANC-4001 TrackingUnreachable: 2 records are not in MLflow yet: the process that sends it was ended because it took too long"
    )
    assert not psutil.pid_exists(sender.pid)
    assert sender.finish().missing is None
    assert only_run(uri).info.status == "FINISHED"


def test_figures_of_nothing_and_of_many_classes():
    confusion(np.zeros((40, 40), np.int64), "none", [f"class {c}" for c in range(40)])
    embeddings(np.zeros((1, 3), np.float32), "one image, one dimension", ("a", "b"))
    points = np.outer(np.arange(5.0), [3.0, 4.0]).astype(np.float32)
    plane, share = principal_plane(points)
    np.testing.assert_allclose(np.abs(plane[:, 0]), np.abs(np.arange(5.0) - 2) * 5, atol=1e-9)
    np.testing.assert_allclose(share, [1, 0], atol=1e-12)


def test_no_password_is_logged():
    error = OSError("cannot reach http://user:secret@host:5000/api\nmore")
    assert first_line(error) == "cannot reach http://…@host:5000/api"

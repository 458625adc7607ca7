"""The sender with a real SQLite store, with one that is down, killed and started again; models loaded back from the registry."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import psutil
import pytest
from mlflow.tracking import MlflowClient
from tracked_run import NOTHING, REPORT, only_run, record_of, start, write_models

from anchorage.api.errors.tracking import TRACKING_INCOMPLETE, TRACKING_UNREACHABLE
from anchorage.engine.embedding_plane import EmbeddingPlane
from anchorage.engine.events import RoundCommitted
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.tracking import Outbox, Sender, figures
from anchorage.engine.tracking.mlflow_run import KEY_TAG
from anchorage.engine.tracking.priority import AUTOGROUP
from anchorage.engine.tracking.process import what_is_sent
from anchorage.engine.tracking.sender import Sending, first_line


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
    mlflow_run = only_run(uri)
    assert (mlflow_run.info.run_name, mlflow_run.data.metrics["accuracy"]) == ("derm", 0.5)


def test_embeddings_of_a_layer_are_drawn_by_their_projection(tmp_path, uri, monkeypatch):
    titles, drawn = [], figures.PROJECTED["pca"]
    monkeypatch.setitem(
        figures.PROJECTED, "pca", lambda points, title, classes: titles.append(title) or drawn(points, title, classes)
    )
    run = start(tmp_path / "outbox")
    plane = EmbeddingPlane("encoder", "PCA", ((0, 1, 0.5, -1.0), (2, 2, 2.0, 3.0)))
    run(RoundCommitted(replace(record_of(1), embeddings=plane), NOTHING, None))
    Sending(tmp_path / "outbox", uri).send_all()
    client = MlflowClient(uri)
    paths = [file.path for file in client.list_artifacts(only_run(uri).info.run_id, "figures/rounds")]
    assert paths == ["figures/rounds/pca-000001.png"]
    assert titles == ["derm, round 1, validation images, encoder"]


@pytest.mark.integration
def test_a_whole_run_reaches_mlflow_and_its_models_answer(tmp_path, uri):
    run = start(tmp_path / "outbox")
    sender = Sender(tmp_path / "outbox", uri)
    for number in range(4):
        run(RoundCommitted(record_of(number), NOTHING, REPORT))
    run.finish("", write_models(tmp_path / "model"))
    sent = sender.finish()
    assert sent.missing is None
    mlflow_run = only_run(uri)
    assert mlflow_run.info.run_id == sent.run_id
    assert mlflow_run.info.status == "FINISHED"
    assert mlflow_run.data.params["method.name"] == "FedAvg"
    assert len(mlflow_run.data.params["long"]) == 6000
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
        for label, probabilities in zip(answer["class"], answer["probabilities"], strict=True):
            assert list(probabilities) == ["a", "b", "c"] and label == max(probabilities, key=probabilities.get)
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
    mlflow_run = only_run(uri)
    assert mlflow_run.info.status == "RUNNING"
    assert mlflow_run.data.metrics["accuracy"] == 0.1
    assert mlflow_run.data.tags[KEY_TAG]


def test_a_failed_run_says_why_and_can_go_on(tmp_path, uri):
    folder = tmp_path / "outbox"
    run = start(folder)
    run.finish("ANC-3001", None)
    Sending(folder, uri).send_all()
    mlflow_run = only_run(uri)
    assert (mlflow_run.info.status, mlflow_run.data.tags["anchorage.code"]) == ("FAILED", "ANC-3001")
    restarted = start(folder)
    restarted(RoundCommitted(record_of(1), NOTHING, None))
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


@pytest.mark.integration
def test_events_are_kept_while_the_tracking_server_is_down(tmp_path, uri):
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        run = start(tmp_path / "outbox")
        sender = Sender(tmp_path / "outbox", f"http://127.0.0.1:{occupied.getsockname()[1]}")
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
    missing = what_is_sent(folder, "").missing
    assert missing is not None
    assert missing.failure is TRACKING_INCOMPLETE
    assert missing.message.startswith("MLflow does not have the final model: ")
    assert missing.message.endswith("(and 1 more)")
    assert only_run(uri).info.status == "FINISHED"
    write_models(tmp_path / "model")
    run.finish("", tmp_path / "model")
    Sending(folder, uri).send_all()
    sent = what_is_sent(folder, "")
    assert (sent.missing, sent.registered_model, sent.model_version) == (None, "derm-model", "1")


@pytest.mark.integration
def test_models_of_a_run_are_registered_once(tmp_path, uri):
    folder, client = tmp_path / "outbox", MlflowClient(uri)
    run = start(folder)
    models = write_models(tmp_path / "model")
    run.finish("", models)
    Sending(folder, uri).send_all()
    versions = client.search_model_versions("name = 'derm-model'")
    assert len(versions) == 2
    (folder / "sender.json").unlink()  # killed before it could write down what it registered
    client.delete_model_version_tag("derm-model", "1", "anchorage.digest")  # and before the version had its tags
    run.finish("", models)
    (models / "model-card.md").write_text("# completed\n")
    Outbox(folder).append("card", {"models": str(models)})
    Sending(folder, uri).send_all()
    assert len(client.search_model_versions("name = 'derm-model'")) == 2
    sent, described = what_is_sent(folder, ""), json.loads((models / "model.json").read_text())
    assert (sent.model_version, sent.best_model_version) == ("1", "2")
    for role, version in (("final", "1"), ("best", "2")):
        model_version = client.get_model_version_by_alias("derm-model", role)
        assert (str(model_version.version), model_version.tags["anchorage.digest"]) == (
            version,
            described[role]["digest"],
        )


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


@pytest.mark.integration
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


@pytest.mark.integration
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


def test_no_password_is_logged():
    error = OSError("cannot reach http://user:secret@host:5000/api\nmore")
    assert first_line(error) == "cannot reach http://…@host:5000/api"


@pytest.mark.skipif(
    not AUTOGROUP.exists(), reason="this kernel does not share the processor between sessions (autogroup)"
)
def test_a_sender_is_modest_until_the_run_is_over():
    program = (
        "import threading; from anchorage.engine.tracking import priority, sender\n"
        "priority.yield_to_rounds(); print(priority.AUTOGROUP.read_text(), flush=True)\n"
        "gone = threading.Event(); sender.watch_input(gone); print(gone.is_set(), priority.AUTOGROUP.read_text())"
    )
    done = subprocess.run([sys.executable, "-c", program], input="", capture_output=True, text=True, check=True)
    match = re.fullmatch(r"(\S+) nice (\d+)\s+(\w+) (\S+) nice (\d+)\s+", done.stdout)
    assert match is not None and match[1] == match[4], done.stdout
    assert (match[2], match[3], match[5]) == ("10", "True", "0")


def test_a_sender_catches_up_when_the_rounds_are_over_before_the_run_is():
    program = (
        "import threading; from anchorage.engine.tracking import sender\n"
        "sender.catch_up = lambda: print('catches up', flush=True)\n"
        "gone = threading.Event(); sender.watch_input(gone); print(gone.is_set())"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"catches up\n"
        child.stdin.close()
        assert child.stdout.read() == b"catches up\nTrue\n"


@pytest.mark.integration
def test_a_sender_that_was_killed_need_not_hear_that_the_rounds_are_over(tmp_path, uri):
    run = start(tmp_path / "outbox")
    sender = Sender(tmp_path / "outbox", uri)
    os.kill(sender.pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(sender.pid)], timeout=30)
    sender.hurry()
    run.finish("", None)
    assert sender.finish().missing is None
    assert only_run(uri).info.status == "FINISHED"

"""The outbox and what the server notes in it; no MLflow."""

import io
import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anchorage.engine.embedding_plane import EmbeddingPlane
from anchorage.engine.events import Observer, RoundCommitted
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.engine.tracking import Outbox, Progress, Sender, TrackedRun
from anchorage.engine.tracking import outbox as outbox_module
from anchorage.engine.tracking.outbox import EVENTS, read_events
from anchorage.engine.tracking.process import ProgressTimeout, what_is_sent
from anchorage.engine.tracking.run import flatten
from anchorage.methods import resolve, validate_study
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Report
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

MODEL = ModelBytes(Layout(()), [])
REPORT = Report({"accuracy": 0.5}, {"confusion": np.eye(2, dtype=np.int64)}, np.zeros((3, 6), np.float32))


def record_of(number: int) -> RoundRecord:
    silos = (
        SiloRecord("a", "Counted", 0.75, {"train": 30}, {"loss": 0.5, "acceptance": 0.9, "system/memory_mb": 900.0}),
        SiloRecord("b", "Late", code="ANC-3006"),
    )
    return RoundRecord(number, "d" * 64, 1e9 + number, {"accuracy": 0.5}, silos, {"train": 2.0}, 10, 20)


def tracked(folder: Path, rounds: int = 20) -> TrackedRun:
    return TrackedRun(
        Outbox(folder),
        federation="derm",
        experiment="derm",
        registered_model="derm",
        rounds=rounds,
        task=Classification(classes=("MEL", "nævus (B+)")),
        parameters={"rounds": rounds, "model": {"name": "SmallCnn"}, "none": None, "list": ["x", {"y": True}]},
        document="kind: Federation\n",
    )


def events(folder: Path) -> list[dict]:
    return [dict(event) for _, event in read_events(folder, 0)]


def test_the_last_round_has_what_the_test_images_said(tmp_path):
    run = tracked(tmp_path, rounds=2)
    other = Report({"accuracy": 0.75}, {"confusion": np.array([[1, 1], [0, 2]])}, np.zeros((3, 6), np.float32))
    scores = {"final": {"accuracy": 0.5}, "best": {"accuracy": 0.75}}
    run(RoundCommitted(replace(record_of(1), test={}), MODEL, REPORT))
    run(RoundCommitted(replace(record_of(2), test=scores), MODEL, REPORT, {"final": REPORT, "best": other}))
    _, first, last = events(tmp_path)
    assert not [name for name in first["metrics"] if name.startswith("test/")]
    test_metrics = {name: value for name, value in last["metrics"].items() if name.startswith("test/")}
    assert test_metrics == {
        "test/final/accuracy": 0.5,
        "test/final/recall/MEL": 1.0,
        "test/final/recall/nævus _B__": 1.0,
        "test/best/accuracy": 0.75,
        "test/best/recall/MEL": 0.5,
        "test/best/recall/nævus _B__": 1.0,
    }
    drawn = {f"{which}{kind}" for which in ("", "test-final-", "test-best-") for kind in ("confusion", "embeddings")}
    assert set(last["arrays"]) == drawn


def test_embeddings_that_the_federation_asks_for_take_the_place_of_the_usual_ones(tmp_path):
    run = tracked(tmp_path, rounds=20)
    plane = EmbeddingPlane("encoder.layer3", "TSNE", ((0, 1, 0.5, -1.0), (1, 1, 2.0, 3.0)))
    for number in (3, 5):  # the fifth has figures in any case
        run(RoundCommitted(replace(record_of(number), embeddings=plane), MODEL, REPORT))
    run(RoundCommitted(record_of(10), MODEL, REPORT))
    _, third, fifth, tenth = events(tmp_path)
    assert [set(event["arrays"]) for event in (third, fifth)] == [{"tsne"}, {"confusion", "tsne"}]
    assert third["layer"] == "encoder.layer3"
    assert np.load(tmp_path / third["arrays"]["tsne"]).tolist() == [[0, 1, 0.5, -1.0], [1, 1, 2.0, 3.0]]
    assert set(tenth["arrays"]) == {"confusion", "embeddings"} and "layer" not in tenth


def test_the_same_model_is_drawn_once(tmp_path):
    run, scores = tracked(tmp_path, rounds=1), {"final": {"accuracy": 0.5}, "best": {"accuracy": 0.5}}
    run(RoundCommitted(replace(record_of(1), test=scores), MODEL, None, {"final": REPORT, "best": REPORT}))
    assert set(events(tmp_path)[1]["arrays"]) == {"test-final-confusion", "test-final-embeddings"}


def test_a_round_has_the_federations_and_every_silos_numbers(tmp_path):
    observer: Observer = tracked(tmp_path)
    observer(RoundCommitted(record_of(1), MODEL, REPORT))
    run, noted = events(tmp_path)
    assert run["parameters"] == {"rounds": "20", "model.name": "SmallCnn", "list.0": "x", "list.1.y": "True"}
    assert noted["round"] == 1
    assert noted["arrays"] == {}
    expected = {
        "accuracy": 0.5,
        "recall/MEL": 1.0,
        "recall/nævus _B__": 1.0,
        "silos_counted": 1,
        "bytes_up": 10,
        "bytes_down": 20,
        "seconds/train": 2.0,
        "silo/a/weight": 0.75,
        "silo/a/samples_train": 30,
        "silo/a/loss": 0.5,
        "silo/a/acceptance": 0.9,
        "system/a/memory_mb": 900.0,
        "silo/b/weight": 0.0,
    }
    assert expected.items() <= noted["metrics"].items()
    assert noted["metrics"]["system/server_memory_mb"] > 1
    assert noted["metrics"]["system/server_cpu_percent"] >= 0


def test_recall_is_told_of_classes_that_have_test_images():
    tally = {"confusion": np.array([[3, 1, 0], [0, 0, 0], [1, 1, 2]])}
    assert Classification(classes=("a", "b", "c")).details(tally) == {"recall/a": 0.75, "recall/c": 0.5}


def test_figures_a_bounded_number_of_times_and_after_the_last_round(tmp_path):
    run = tracked(tmp_path, rounds=25)
    for number in range(26):
        run(RoundCommitted(record_of(number), MODEL, REPORT))
    with_arrays = [e["round"] for e in events(tmp_path) if e["kind"] == "round" and e["arrays"]]
    assert with_arrays == [*range(0, 26, 7), 25]
    last = events(tmp_path)[-1]["arrays"]
    assert np.array_equal(np.load(tmp_path / last["confusion"]), REPORT.tally["confusion"])


def test_a_restarted_server_keeps_the_key_and_notes_what_it_could_not(tmp_path):
    first = tracked(tmp_path)
    first(RoundCommitted(record_of(0), MODEL, None))
    first(RoundCommitted(record_of(1), MODEL, None))
    with (tmp_path / EVENTS).open("ab") as file:
        file.write(b'{"kind": "round", "rou')  # killed while writing
    second = tracked(tmp_path)
    second.catch_up([record_of(n) for n in range(4)])
    second.finish("", tmp_path / "model")
    event_list = events(tmp_path)
    assert [e["round"] for e in event_list if e["kind"] == "round"] == [0, 1, 2, 3]
    assert len({e["key"] for e in event_list if e["kind"] == "run"}) == 1
    assert event_list[-1] == {"kind": "end", "code": "", "models": str(tmp_path / "model"), "arrays": {}}


def test_reading_goes_on_behind_an_offset_and_waits_for_whole_lines(tmp_path):
    outbox = Outbox(tmp_path)
    outbox.append("round", {"round": 1})
    offset = next(read_events(tmp_path, 0))[0]
    with (tmp_path / EVENTS).open("ab") as file:
        file.write(b'{"kind": "end"')
    assert list(read_events(tmp_path, offset)) == []
    with (tmp_path / EVENTS).open("ab") as file:
        file.write(b"}\n")
    assert [e["kind"] for _, e in read_events(tmp_path, offset)] == ["end"]


def test_a_full_outbox_drops_and_warns_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(outbox_module, "LARGEST_EVENTS", 200)
    outbox = Outbox(tmp_path)
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            outbox.append("round", {"round": number})
    assert (tmp_path / EVENTS).stat().st_size <= 200
    assert [e["round"] for e in events(tmp_path)] == [0, 1, 2, 3]
    assert sum("ANC-4002" in message for message in caplog.messages) == 1


def test_arrays_beyond_the_bound_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox_module, "LARGEST_ARRAYS", 1500)
    outbox = Outbox(tmp_path)
    for _ in range(3):
        outbox.append("round", {}, {"confusion": np.zeros(100)})
    assert [len(e["arrays"]) for e in events(tmp_path)] == [1, 0, 0]


def test_a_disk_error_never_reaches_the_engine(tmp_path, monkeypatch, caplog):
    outbox = Outbox(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with caplog.at_level(logging.WARNING):
        outbox.append("round", {"round": 1}, {"confusion": np.zeros(3)})
    assert events(tmp_path) == []
    assert "No space left" in caplog.text
    outbox.append("round", {"round": 2})
    assert [e["round"] for e in events(tmp_path)] == [2]
    outbox.close()


def test_rounds_that_could_not_be_kept_are_noted_by_the_next_start(tmp_path, monkeypatch):
    run = tracked(tmp_path)
    run(RoundCommitted(record_of(0), MODEL, None))
    with monkeypatch.context() as patched:
        patched.setattr(outbox_module, "LARGEST_EVENTS", 200)
        run(RoundCommitted(record_of(1), MODEL, None))
    run(RoundCommitted(record_of(2), MODEL, None))
    tracked(tmp_path).catch_up([record_of(number) for number in range(3)])
    assert [e["round"] for e in events(tmp_path) if e["kind"] == "round"] == [0, 2, 1]


def test_a_line_for_which_there_is_no_room_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    outbox = Outbox(tmp_path)
    outbox.append("round", {"round": 1})
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(outbox_module.os, "write", lambda handle, line: write(handle, line[:5]))
        outbox.append("round", {"round": 2})
    outbox.append("round", {"round": 3})
    assert ([e["round"] for e in events(tmp_path)], outbox.dropped) == ([1, 3], 1)


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ({}, "ANC-4001 TrackingUnreachable: 1 record is not in MLflow yet: why"),
        ({"trouble": "down"}, "ANC-4001 TrackingUnreachable: 1 record is not in MLflow yet: down"),
        ({"offset": 1 << 20}, "None"),
        (
            {"offset": 1 << 20, "left_out": {"round 3": "refused", "the best model": "gone"}},
            "ANC-4002 TrackingIncomplete: MLflow does not have round 3: refused (and 1 more)",
        ),
    ],
)
def test_what_mlflow_does_not_have_is_told(tmp_path, progress, expected):
    Outbox(tmp_path).append("run", {})
    Progress(**progress).write(tmp_path)
    assert str(what_is_sent(tmp_path, "why").missing) == expected


def test_what_is_noted_while_the_sender_ends_is_sent_by_another(tmp_path, monkeypatch):
    outbox, started = Outbox(tmp_path), []
    outbox.append("end", {})

    class SendsAndEnds:
        """Has sent what was there at its start; the first ends while the completed model card comes."""

        returncode, pid = 0, os.getpid()

        def __init__(self, *_, **__):
            started.append(self)
            self.stdin = io.BytesIO()
            Progress(offset=(tmp_path / EVENTS).stat().st_size).write(tmp_path)

        def poll(self):
            if len(started) == 1 and self.stdin.closed:
                outbox.append("card", {})
            return self.returncode

    monkeypatch.setattr("subprocess.Popen", SendsAndEnds)
    assert Sender(tmp_path, "sqlite://").finish().missing is None
    assert len(started) == 2


def test_only_the_time_without_progress_is_limited():
    timeout = ProgressTimeout(10, 1000, 0)
    assert not any(timeout.is_over(number, 9 * number) for number in range(100))
    assert not timeout.is_over(99, 900)
    assert timeout.is_over(99, 901)
    assert not timeout.is_over(100, 999)
    assert timeout.is_over(101, 1000)


def test_parameters_are_what_preset_and_documents_say(tmp_path):
    study = validate_study(Path(__file__).parents[4] / "examples" / "digits.yaml")
    TrackedRun.of(Outbox(tmp_path), study.federation, resolve(study.federation.spec.method), "kind: Federation\n")
    (event,) = events(tmp_path)
    parameters = event["parameters"]
    assert (
        parameters["method.name"] == "FedAnchor"
        and parameters["method.pseudoLabels.anchorSimilarity.threshold"] == "0.8"
    )
    assert (parameters["method.weighting"], parameters["seed"], parameters["outputs"][:4]) == (
        "sampleCount",
        "1",
        "0, 1",
    )
    unused = ("warmUpEpochs", "nesterov", "tracking", "deletionPolicy", "storage", "secondHead", "onBadImage")
    assert not [name for name in parameters if any(word in name for word in unused)]
    assert event["name"] == "digits FedAnchor seed 1" and event["tags"]["anchorage.network"] == "SmallCnn"


def test_flatten_leaves_nothing_nested():
    values = {"a": {"b": [1, {"c": "d"}], "e": None, "f": {}}, "g": False}
    assert dict(flatten(values)) == {"a.b.0": "1", "a.b.1.c": "d", "g": "False"}
    slots = {"weighting": {"dvw": {}}, "mixup": {"none": {}}, "classes": ["a", "b"], "empty": []}
    assert dict(flatten({"method": slots})) == {"method.weighting": "dvw", "method.classes": "a, b"}
    assert json.dumps(dict(flatten(values)))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_survive(tmp_path, number):
    outbox = Outbox(tmp_path)
    outbox.append("round", {"metrics": {"loss": number}})
    assert str(events(tmp_path)[0]["metrics"]["loss"]) == str(number)

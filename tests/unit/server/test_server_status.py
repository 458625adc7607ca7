"""The status: what it says after each thing that the engine tells."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import QUORUM_LOST, STOPPED
from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.status import FederationStatus, StoredModel, TrackingStatus
from anchorage.engine.events import (
    Observer,
    RoundCommitted,
    RoundStarted,
    RunEnded,
    SiloChanged,
    SiloJoined,
    SiloLeft,
    Step,
    StepBegan,
    Waiting,
)
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.transport.messages import Profile
from anchorage.transport.pace import Travel
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_server.status import GRACE_SECONDS, MOST, StatusStore
from anchorage_server.tracking import Tracked

MODEL = ModelBytes(Layout.of([]), ())


class FakeClock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def statuses(tmp_path: Path, clock: FakeClock) -> StatusStore:
    return make_board(tmp_path, clock, ())


def make_board(folder: Path, clock: FakeClock, history: tuple[RoundRecord, ...]) -> StatusStore:
    return StatusStore(
        file=folder / "status.json",
        clock=clock,
        rounds=4,
        started=history[0].time if history else clock.now(),
        silos=["a", "b"],
        round_deadline_seconds=60.0,
        history=history,
        checkpoint=lambda number: folder / f"round-{number}",
    )


def conditions(statuses: StatusStore) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in statuses.snapshot().conditions}


def committed(number: int) -> RoundRecord:
    parts = (SiloRecord("a", "Counted", 0.75, {"train": 30}), SiloRecord("b", "Late", code="ANC-3006", message="slow"))
    return RoundRecord(
        number, "ab12", 1_000_050.0, {"accuracy": 0.5, "macro_auc": math.nan}, parts, {"silos": 1.5}, 10, 20
    )


def test_the_headline_is_of_the_validation_images_else_of_the_test_images(statuses: StatusStore) -> None:
    tested = {"final": {"accuracy": 0.75}, "best": {"accuracy": 0.875}}
    silent = replace(committed(1), metrics={"server_loss": 0.5})
    statuses(RoundCommitted(silent, MODEL, None))
    assert statuses.snapshot().metric == "server_loss 0.500"
    statuses(RoundCommitted(replace(silent, round=2, test=tested), MODEL, None))
    assert statuses.snapshot().metric == "test accuracy 0.750"
    statuses(RoundCommitted(replace(committed(3), test=tested), MODEL, None))
    assert statuses.snapshot().metric == "accuracy 0.500"


def test_a_silo_has_the_share_of_images_that_it_accepted(statuses: StatusStore) -> None:
    samples = ({"train": 40, "unlabelled": 40, "selected": 10}, {"train": 40, "unlabelled": 0, "selected": 0})
    parts = tuple(SiloRecord(name, "Counted", samples=count) for name, count in zip("ab", samples, strict=True))
    statuses(RoundCommitted(replace(committed(1), silos=parts), MODEL, None))
    assert [silo.acceptance for silo in statuses.snapshot().silos] == ["0.25", ""]


def test_a_silo_has_the_privacy_loss_that_it_told_last(statuses: StatusStore) -> None:
    for number, spent in enumerate((1.25, 1.5), 1):
        parts = (SiloRecord("a", "Counted", metrics={"epsilon": spent, "delta": 1e-5}), SiloRecord("b", "Counted"))
        statuses(RoundCommitted(replace(committed(number), silos=parts), MODEL, None))
    assert [silo.epsilon for silo in statuses.snapshot().silos] == ["1.5", ""]


def test_a_silo_whose_images_changed_is_named(statuses: StatusStore) -> None:
    def record(number: int, *fingerprints: str) -> RoundRecord:
        parts = (
            SiloRecord(name, "Counted", fingerprint=digest) for name, digest in zip("ab", fingerprints, strict=True)
        )
        return replace(committed(number), silos=tuple(parts))

    for number, fingerprints in (
        (1, ("11", "22")),
        (2, ("11", "")),
        (3, ("11", "22")),
        (4, ("11", "33")),
        (5, ("11", "33")),
    ):
        statuses(RoundCommitted(record(number, *fingerprints), MODEL, None))
    assert [silo.message for silo in statuses.snapshot().silos] == ["", "its images changed before round 4"]


def test_it_is_an_observer(statuses: StatusStore) -> None:
    observer: Observer = statuses
    observer(StepBegan(Step.TRAIN))
    assert statuses.snapshot().step == "train"


def test_before_anything_happened(statuses: StatusStore) -> None:
    assert conditions(statuses) == {
        "Ready": ("False", "Starting"),
        "QuorumMet": ("Unknown", "Starting"),
        "Succeeded": ("Unknown", "Running"),
        "Failed": ("False", "Running"),
        "Tracked": ("Unknown", "Sending"),
    }
    status = statuses.snapshot()
    assert [s.name for s in status.silos] == ["a", "b"]
    assert status.last_checkpoint is None


def test_silos_come_work_and_go(statuses: StatusStore, clock: FakeClock) -> None:
    statuses(SiloJoined("b", Profile("None", 40, "1", clock="it is 9 min behind", packages=("acme 0.1.0",))))
    statuses(RoundStarted(1, ["a", "b"]))
    statuses(SiloChanged("b", "Training", 3, 4))
    silo = statuses.snapshot().silos[1]
    assert (silo.connected, silo.state, silo.task, silo.progress, silo.samples) == (True, "Training", "Train", 75, 40)
    assert silo.message == "ANC-2012 ClockOff: it is 9 min behind"
    assert silo.packages == ("acme 0.1.0",)
    assert statuses.snapshot().connected_silos == 1
    statuses(SiloLeft("b", "connection lost"))
    statuses(SiloJoined("z", Profile("None", 1, "1")))
    assert [(s.name, s.connected) for s in statuses.snapshot().silos] == [("a", False), ("b", False), ("z", True)]


def test_a_silo_that_is_back_is_not_said_to_have_left(statuses: StatusStore) -> None:
    for event in (SiloJoined("a", PROFILE), SiloLeft("a", "connection lost"), SiloJoined("a", PROFILE)):
        statuses(event)
    silo = statuses.snapshot().silos[0]
    assert (silo.connected, silo.message) == (True, "")


PROFILE = Profile("None", 40, "1")


def test_nobody_works_after_the_end_or_after_the_commit(statuses: StatusStore) -> None:
    statuses(RoundStarted(1, ["a", "b"]))
    statuses(SiloChanged("a", "Training", 3, 4))
    statuses(SiloChanged("b", "Uploading", 1, 4))
    statuses(RoundCommitted(committed(1), MODEL, None))
    assert [(s.state, s.task, s.progress) for s in statuses.snapshot().silos] == [("Counted", "", 0), ("Late", "", 0)]
    statuses(RoundStarted(2, ["a", "b"]))
    statuses(SiloChanged("a", "Arrived", 4, 4))
    statuses(SiloChanged("b", "Uploading", 1, 4))
    statuses(RunEnded(STOPPED.code, "received SIGINT"))
    silos = statuses.snapshot().silos
    assert [(s.state, s.task) for s in silos] == [("Arrived", ""), ("Waiting", "")], "what arrived is kept"
    assert silos[1].progress == 0


def test_what_mlflow_has_is_told_and_written_when_it_changes(statuses: StatusStore, tmp_path: Path) -> None:
    place, file = TrackingStatus(uri="http://mlflow:5000"), tmp_path / "status.json"
    statuses.note_tracking(Tracked(place))
    assert conditions(statuses)["Tracked"] == ("Unknown", "Sending")
    file.unlink()
    statuses.note_tracking(Tracked(place))
    assert not file.exists()
    statuses.note_tracking(Tracked(place, missing=AnchorageError(TRACKING_UNREACHABLE, "it is down")))
    written = FederationStatus.model_validate_json(file.read_bytes())
    assert {c.type: (c.status, c.reason, c.message) for c in written.conditions}["Tracked"] == (
        "False",
        "TrackingUnreachable",
        "it is down",
    )
    statuses.note_tracking(Tracked(place, complete=True))
    assert conditions(statuses)["Tracked"] == ("True", "Sent")


def test_a_commit_is_shown_and_written(statuses: StatusStore, tmp_path: Path) -> None:
    statuses(RoundCommitted(committed(1), MODEL, None))
    written = FederationStatus.model_validate_json((tmp_path / "status.json").read_bytes())
    assert written == statuses.snapshot()
    assert (written.round, written.rounds, written.progress_percentage) == (1, 4, 25)
    assert {m.name: m.value for m in written.metrics} == {"accuracy": "0.5", "macro_auc": "nan"}
    assert written.last_checkpoint is not None
    assert written.last_checkpoint.path.endswith("round-1")
    assert (written.bytes_up, written.bytes_down) == (10, 20)
    first, second = written.silos
    assert (first.weight, first.samples, first.state) == ("0.75", 30, "Counted")
    assert (second.state, second.code, second.message) == ("Late", "ANC-3006", "slow")
    assert json.loads((tmp_path / "status.json").read_text())["lastCheckpoint"]["digest"] == "ab12"


def test_history_is_restored(tmp_path: Path, clock: FakeClock) -> None:
    status = make_board(tmp_path, clock, (committed(0), committed(1))).snapshot()
    assert (status.round, status.bytes_down) == (1, 40)
    assert status.start_time == "1970-01-12T13:47:30Z"


def test_waiting_for_a_quorum_and_going_on(statuses: StatusStore, clock: FakeClock) -> None:
    statuses(Waiting("QuorumLost", "1 of 2 silos connected"))
    assert conditions(statuses)["QuorumMet"] == ("False", "QuorumLost")
    since = {c.type: c.last_transition_time for c in statuses.snapshot().conditions}
    clock.time += 10
    statuses(Waiting("QuorumLost", "x" * 3000))
    assert {c.type: c.last_transition_time for c in statuses.snapshot().conditions} == since
    statuses(Waiting("", ""))
    assert conditions(statuses)["QuorumMet"] == ("True", "EnoughSilos")


@pytest.mark.parametrize(
    ("code", "succeeded", "failed"),
    [
        ("", ("Unknown", "StoringResults"), ("False", "StoringResults")),
        (QUORUM_LOST.code, ("False", "QuorumLost"), ("True", "QuorumLost")),
        ("internal", ("False", "InternalError"), ("True", "InternalError")),
        (STOPPED.code, ("False", "Stopped"), ("False", "Stopped")),
    ],
)
def test_the_end(
    statuses: StatusStore, tmp_path: Path, code: str, succeeded: tuple[str, str], failed: tuple[str, str]
) -> None:
    statuses.listening()
    assert conditions(statuses)["Ready"] == ("True", "Listening")
    statuses(RunEnded(code, "why"))
    conditions_now = conditions(statuses)
    assert (conditions_now["Succeeded"], conditions_now["Failed"], conditions_now["Ready"][0]) == (
        succeeded,
        failed,
        "False",
    )
    statuses.note_models(StoredModel(path="/m/final", digest="ab"), StoredModel(path="/m/best", digest="cd"))
    written = FederationStatus.model_validate_json((tmp_path / "status.json").read_bytes())
    assert written.model is not None
    assert written.model.path == "/m/final"


@pytest.mark.parametrize(
    ("missing", "tracked"),
    [(None, ("True", "Sent")), (AnchorageError(TRACKING_UNREACHABLE, "away"), ("False", "TrackingUnreachable"))],
)
def test_success_needs_stored_results(
    statuses: StatusStore, tmp_path: Path, missing: AnchorageError | None, tracked: tuple[str, str]
) -> None:
    place, model = TrackingStatus(uri="sqlite:///m.db"), StoredModel(path="/m/final", digest="ab")
    away = AnchorageError(TRACKING_UNREACHABLE, "away during the rounds")
    statuses(RunEnded("", "4 rounds committed"))
    for store in (
        lambda: statuses.note_models(model, model),
        lambda: statuses.note_tracking(Tracked(place, missing=away)),
        lambda: statuses.note_tracking(Tracked(place)),
    ):
        store()
        assert conditions(statuses)["Succeeded"] == ("Unknown", "StoringResults")
    statuses.note_success(Tracked(place, missing is None, missing))
    written = FederationStatus.model_validate_json((tmp_path / "status.json").read_bytes())
    assert written.model == model
    conditions_written = {c.type: (c.status, c.reason) for c in written.conditions}
    assert (conditions_written["Succeeded"], conditions_written["Tracked"]) == (("True", "AllRoundsCommitted"), tracked)
    assert conditions_written["Failed"] == conditions_written["Ready"] == ("False", "AllRoundsCommitted")
    assert {c.message for c in written.conditions if c.type in ("Succeeded", "Ready")} == {"4 rounds committed"}


def test_a_server_that_keeps_results_stays_ready(statuses: StatusStore) -> None:
    statuses(RunEnded("", ""))
    statuses.listening()
    statuses.note_success(Tracked(TrackingStatus(), complete=True))
    conditions_now = conditions(statuses)
    assert (conditions_now["Succeeded"], conditions_now["Ready"]) == (
        ("True", "AllRoundsCommitted"),
        ("True", "Listening"),
    )


def test_what_is_on_its_way_is_told_in_bounds(statuses: StatusStore, tmp_path: Path) -> None:
    travels = {"a": Travel(499_999.6, 80.2), "b": Travel(1e30, 1e30), "stranger": Travel(1.0)}
    statuses.listening(lambda: travels)
    a, b = statuses.snapshot().silos
    assert (a.rate, a.seconds_left) == (500_000, 81)
    assert (b.rate, b.seconds_left) == (MOST, MOST)
    statuses(RoundCommitted(committed(1), MODEL, None))
    written = FederationStatus.model_validate_json((tmp_path / "status.json").read_bytes())
    assert [(silo.rate, silo.seconds_left) for silo in written.silos] == [(0, None)] * 2, (
        "a file would keep it for ever"
    )
    travels.clear()
    assert [(silo.rate, silo.seconds_left) for silo in statuses.snapshot().silos] == [(0, None)] * 2


def test_a_silent_engine_counts_as_stuck_but_an_ended_one_does_not(statuses: StatusStore, clock: FakeClock) -> None:
    statuses(StepBegan(Step.AGGREGATE))
    clock.time += 60 + GRACE_SECONDS
    assert statuses.describe_stall() == ""
    clock.time += 1
    assert "in step aggregate" in statuses.describe_stall()
    statuses(StepBegan(Step.COMMIT))
    assert statuses.describe_stall() == ""
    statuses(RunEnded("", ""))
    clock.time += 10_000
    assert statuses.describe_stall() == ""


def test_a_status_file_that_cannot_be_written_does_not_stop_the_engine(tmp_path: Path, clock: FakeClock) -> None:
    statuses = make_board(tmp_path / "missing", clock, ())
    statuses(RoundCommitted(committed(1), MODEL, None))
    assert statuses.snapshot().round == 1

"""What a finished run leaves for a server that starts after it."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.api.status import StoredModel, TrackingStatus
from anchorage.engine.tracking import Sent
from anchorage.methods import PRESETS, validate_study
from anchorage.pieces.task.classification import Classification
from anchorage.transport.tensors.layout import Layout
from anchorage_server import tracking
from anchorage_server.finished import FinishedRun
from anchorage_server.tracking import Tracked, Tracking

PLACE = TrackingStatus(uri="sqlite:///m.db", experiment="f")
DOCUMENT = """
kind: Federation
metadata: {name: derm}
spec:
  rounds: 1
  task: {classification: {classes: [a, b]}}
  model: {network: SmallCnn, imageSize: 8}
  method: {name: FedAvg}
---
kind: Silo
metadata: {name: a}
spec: {federation: derm, labels: All}
"""


def finished(folder: Path) -> FinishedRun:
    layout = Layout.of([("w", "F32", (3,))]).to_json()
    model = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b")), image_size=8)
    method = PRESETS["FedAvg"].slots
    run = RunDescription(
        federation="f", seed=1, model=model, method=method, down=layout, up=layout, rounds=1, mode="Synchronous"
    )
    stored = StoredModel(path=str(folder / "model" / "final.safetensors"), digest="ab", round=1)
    return FinishedRun(run=run, study={}, model=stored, best_model=stored, tracking=PLACE, reported=False)


class Sending:
    """Stands for `Tracking`: notes in which order things happen."""

    def __init__(self, state: Path, missing: AnchorageError | None) -> None:
        self.notes: list[tuple[str, bool]] = []
        self._state, self._missing = state, missing

    def under_way(self) -> Tracked:
        return Tracked(PLACE, missing=AnchorageError(TRACKING_UNREACHABLE, "an hour ago"))

    def send(self) -> Tracked:
        self.note("sent")
        return Tracked(PLACE, self._missing is None, self._missing)

    def note_tracking(self, result: Tracked) -> None:
        self.note("tracked")

    def note_success(self, result: Tracked) -> None:
        assert result.missing is self._missing
        self.note("succeeded")

    def note(self, what: str) -> None:
        self.notes.append((what, json.loads((self._state / "finished.json").read_text())["reported"]))


@pytest.mark.parametrize("missing", [None, AnchorageError(TRACKING_UNREACHABLE, "away")])
def test_a_run_succeeds_when_it_is_known_what_mlflow_has(tmp_path: Path, missing: AnchorageError | None) -> None:
    run, sending = finished(tmp_path), Sending(tmp_path, missing)
    run.keep(tmp_path)
    assert run.send_again(tmp_path, cast(Any, sending), cast(Any, sending)) is missing
    assert sending.notes == [("tracked", False), ("sent", False), ("succeeded", True)]


def test_files_of_earlier_versions_are_of_runs_that_succeeded(tmp_path: Path) -> None:
    run = finished(tmp_path)
    values = json.loads(run.model_dump_json(by_alias=True))
    del values["reported"]
    assert FinishedRun.model_validate_json(json.dumps(values)).reported


@pytest.mark.parametrize(("best", "named"), [("7", "7"), ("", "6")])
def test_the_status_names_the_version_of_the_best_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, best: str, named: str
) -> None:
    class Sender:
        def __init__(self, folder: Path, uri: str) -> None:
            pass

        def finish(self, at_most_seconds: float) -> Sent:
            return Sent("run", "derm", "6", best, None)

    monkeypatch.setattr(tracking, "Sender", Sender)
    (tmp_path / "derm.yaml").write_text(DOCUMENT)
    tracked = Tracking(tmp_path, validate_study(tmp_path / "derm.yaml"), ()).send()
    assert (tracked.place.registered_model, tracked.place.model_version) == ("derm", named)

"""A folder claimed for a run: what may change in its documents, and what is kept."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from agent_options import other_options
from left_run import DOCUMENTS, condition, leave, record

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.mistakes import DocumentError
from anchorage.api.status import (
    CheckpointStatus,
    FederationStatus,
    SiloStatus,
    StoredModel,
    TrackingStatus,
    timestamp,
)
from anchorage.methods import validate_study
from fedctl import local_run
from fedctl.local_run import RunWatcher, already_finished, claim, is_tracked, local_silos
from fedctl.observation import last_status
from fedctl.workdir import Workdir


def test_a_folder_is_claimed_for_one_federation(file: Path, tmp_path: Path) -> None:
    run = Workdir(tmp_path / "run")
    run.make()
    claim(run, validate_study(file))
    federation = claim(run, validate_study(file, ["spec.rounds=9", "spec.protocol.minSilos=2"]))
    assert federation.spec.rounds == 9 and federation.spec.tracking.uri == run.tracking_uri
    mended = claim(run, validate_study(file, ["spec.model.imageSize=16"]))
    assert mended.spec.model.image_size == 16, "no round is committed"
    with pytest.raises(AnchorageError, match="its federation is") as caught:
        claim(run, validate_study(file, ["metadata.name=other", "silo.spec.federation=other"]))
    assert caught.value.failure is commands.WORKDIR_TAKEN
    (run.root / "simulation.yaml").touch()
    with pytest.raises(AnchorageError, match=r"WorkdirTaken: .* holds a simulation"):
        claim(run, validate_study(file))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("spec.protocol.mode=Asynchronous", "spec.protocol.mode is Asynchronous, but training began with Synchronous"),
        ("spec.rounds=4", "spec.rounds is 4, but 5 rounds are committed"),
        ("silo.spec.labels=Partial", "silo a spec.labels is Partial"),
        ("spec.deletionPolicy=Delete", ""),
        ("spec.rounds=5", ""),
    ],
)
def test_what_a_run_that_goes_on_may_change(file: Path, tmp_path: Path, override: str, words: str) -> None:
    run = Workdir(tmp_path / "run")
    run.make()
    claim(run, validate_study(file, ["spec.rounds=9"]))
    silos = (SiloStatus(name="a", samples=10), SiloStatus(name="b", samples=10))
    status = FederationStatus(round=5, last_checkpoint=CheckpointStatus(round=5), silos=silos)
    run.status.write_text(status.model_dump_json(by_alias=True))
    run.journal.write_text("".join(json.dumps(record(number)) + "\n" for number in range(6)))
    if words:
        with pytest.raises(AnchorageError, match=words) as caught:
            claim(run, validate_study(file, ["spec.rounds=9", override]))
        assert caught.value.failure is commands.WORKDIR_TAKEN
        assert "more" not in str(caught.value), "silo b connected, but no update of it was counted"
    else:
        claim(run, validate_study(file, ["spec.rounds=9", override]))


def test_documents_mended_after_a_failed_first_start_begin_anew(file: Path, tmp_path: Path) -> None:
    run = Workdir(tmp_path / "run")
    run.make()
    claim(run, validate_study(file))
    run.status.write_text(FederationStatus(last_checkpoint=CheckpointStatus(round=0)).model_dump_json(by_alias=True))
    run.journal.write_text(json.dumps(record(0)) + "\n")
    claim(run, validate_study(file, ["spec.protocol.minSilos=2", "spec.rounds=5"]))
    assert run.journal.exists(), "round 0 is still what it would be"
    run.anchors_alone.write_text("{}")
    claim(run, validate_study(file, ["spec.seed=7"]))
    assert not any(run.server.iterdir()) and not run.anchors_alone.exists()
    run.federation.write_text("kind: Federation\nspec: {of: an earlier version}\n")
    assert claim(run, validate_study(file)).spec.rounds == 4


@pytest.mark.parametrize("only", ["journal", "status", "checkpoint"])
def test_what_was_trained_is_never_removed(file: Path, tmp_path: Path, only: str) -> None:
    run = Workdir(tmp_path / "run")
    run.make()
    claim(run, validate_study(file))
    checkpoint = run.server / "checkpoints" / "round-000001.safetensors"
    if only == "journal":
        run.journal.write_text("".join(json.dumps(record(number)) + "\n" for number in range(2)))
    elif only == "status":
        leave(run, FederationStatus(round=1))
    else:
        checkpoint.parent.mkdir()
        checkpoint.touch()
    files = sorted(run.server.rglob("*"))
    with pytest.raises(AnchorageError, match=r"spec\.seed is 7") as caught:
        claim(run, validate_study(file, ["spec.seed=7"]))
    assert caught.value.failure is commands.WORKDIR_TAKEN
    file.write_text("labels: Partial".join(DOCUMENTS.rsplit("labels: All", 1)))
    claim(run, validate_study(file))  # of silo b no update was counted
    run.federation.write_text("kind: Federation\nspec: {of: an earlier version}\n")
    with pytest.raises(DocumentError):
        claim(run, validate_study(file))
    assert sorted(run.server.rglob("*")) == files


def test_results_are_tracked_where_the_documents_say(killed_run: Workdir, file: Path) -> None:
    federation = claim(killed_run, validate_study(file))
    place = TrackingStatus(uri=killed_run.tracking_uri)
    for status, uri, complete in (
        ("True", killed_run.tracking_uri, True),
        ("False", killed_run.tracking_uri, False),
        ("True", "o", False),
    ):
        update = {"conditions": (condition("Tracked", status),), "tracking": place.model_copy(update={"uri": uri})}
        leave(killed_run, last_status(killed_run).model_copy(update=update))
        assert is_tracked(killed_run, federation) is complete


def test_every_option_of_an_agent_reaches_its_configuration(file: Path, tmp_path: Path) -> None:
    options = other_options()
    documents = list(yaml.safe_load_all(DOCUMENTS))
    for document in documents:
        if document["kind"] == "Silo":
            document["spec"]["managed"] |= options
    file.write_text(yaml.safe_dump_all(documents))
    for silo in local_silos(validate_study(file), tmp_path):
        assert {name: silo.settings[name] for name in silo.settings.keys() - {"labels", "data"}} == options


def test_a_silo_without_images_here_is_refused(file: Path, tmp_path: Path) -> None:
    file.write_text(DOCUMENTS[: DOCUMENTS.rindex("  managed")])
    with pytest.raises(AnchorageError, match="silo b") as caught:
        local_silos(validate_study(file), tmp_path)
    assert caught.value.failure is commands.SILO_NOT_LOCAL


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    run = Workdir(tmp_path)
    assert not run.busy()
    with run.lock():
        assert run.busy()
        with pytest.raises(AnchorageError) as caught, run.lock():
            pass
    assert caught.value.failure is commands.WORKDIR_BUSY and not run.busy()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AnchorageError) as caught:
        Workdir(tmp_path / "file" / "run").make()
    assert caught.value.failure is commands.WORKDIR_UNUSABLE


def test_a_run_is_finished_when_every_round_is_committed_and_the_model_stored(killed_run: Workdir, file: Path) -> None:
    federation = validate_study(file).federation
    assert not already_finished(killed_run, federation)
    stored = {name: StoredModel(path=str(killed_run.root / name), digest="d") for name in ("model", "best_model")}
    done = {"round": 4, **stored}  # MLflow may lack the results: the server alone sends them
    leave(killed_run, last_status(killed_run).model_copy(update=done))
    assert not already_finished(killed_run, federation), "the files are gone"
    (killed_run.root / "model").touch()
    (killed_run.root / "best_model").touch()
    assert already_finished(killed_run, federation)
    more = federation.model_copy(update={"spec": federation.spec.model_copy(update={"rounds": 5})})
    assert not already_finished(killed_run, more)


def test_the_comparison_starts_while_the_results_are_stored(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        FederationStatus(round=3, rounds=4),
        FederationStatus(round=4, rounds=4, completion_time=timestamp(1.8e9)),
    ]
    monkeypatch.setattr(local_run, "ask_status", lambda address: answers.pop(0))
    comparison = Mock()
    watcher = RunWatcher(Mock(), validate_study(file).federation, Mock(), comparison)
    for started in (0, 1):
        watcher.refresh({"status": "127.0.0.1:1"}, {"server": "running"})
        assert comparison.start.call_count == started


def test_the_card_is_completed_and_the_report_drawn_while_the_results_are_sent(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = StoredModel(path="final.safetensors", digest="0" * 64, round=4)
    stored = FederationStatus(round=4, rounds=4, completion_time=timestamp(1.8e9), model=model)
    monkeypatch.setattr(local_run, "ask_status", lambda address: stored)
    completed: list[object] = []
    monkeypatch.setattr(local_run, "complete_card", lambda run, alone: completed.append(alone))
    monkeypatch.setattr(local_run, "draw_sections", lambda source: [source.run])
    comparison = Mock(ended=False)
    watcher = RunWatcher(Mock(), validate_study(file).federation, Mock(), comparison)
    for comparison.ended in (False, True, True):
        assert watcher.drawing is None or comparison.ended
        watcher.refresh({"status": "127.0.0.1:1"}, {"server": "running"})
    assert completed == [comparison.scores.return_value]
    assert watcher.drawing is not None
    assert watcher.drawing.result() == [watcher.run]

"""Commands in this process, on documents and on what a run left."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from anchorage.api.errors import CATALOGUE, AnchorageError, commands, documents, storage
from anchorage.api.mistakes import DocumentError
from anchorage.api.status import (
    CheckpointStatus,
    Condition,
    FederationStatus,
    Metric,
    SiloStatus,
    StoredModel,
    TrackingStatus,
    timestamp,
)
from anchorage.methods import PRESETS, validate_study
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_safetensors, write_safetensors
from fedctl.failures import ending
from fedctl.local_run import already_finished, claim, is_tracked, local_silos
from fedctl.main import app
from fedctl.observation import last_status, observe
from fedctl.workdir import Workdir

DOCUMENTS = """
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 4
  task: {classification: {classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}
  model: {network: SmallCnn, imageSize: 8, channels: 1}
  method: {name: FedAvg}
  evaluation: {validation: {format: Digits, use: Test, testPercent: 20}}
---
kind: Silo
metadata: {name: a}
spec:
  federation: tiny
  labels: All
  managed: {data: {format: Digits, use: Part, testPercent: 20, partition: {recipe: Iid, parts: 2, part: 0}}}
---
kind: Silo
metadata: {name: b}
spec:
  federation: tiny
  labels: All
  managed: {data: {format: Digits, use: Part, testPercent: 20, partition: {recipe: Iid, parts: 2, part: 1}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(DOCUMENTS)
    return path


def fedctl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result: Result) -> AnchorageError:
    assert isinstance(result.exception, AnchorageError), result.output
    return result.exception


@pytest.fixture
def left(tmp_path: Path, file: Path) -> Workdir:
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


def leave(run: Workdir, status: FederationStatus) -> None:
    run.status.write_text(status.model_dump_json(by_alias=True))


def condition(kind: str, status: Any) -> Condition:
    return Condition(type=kind, status=status, reason="Running", last_transition_time=timestamp(1.8e9))


def record(number: int) -> dict[str, Any]:
    silos = [
        {"name": "a", "state": "Counted", "weight": 1.0, "samples": {}, "metrics": {}, "code": "", "message": ""},
        {
            "name": "b",
            "state": "Failed",
            "weight": 0.0,
            "samples": {},
            "metrics": {},
            "code": "ANC-3004",
            "message": "NaN",
        },
    ]
    return {
        "schemaVersion": 1,
        "round": number,
        "digest": "d",
        "time": 1.8e9 + number,
        "metrics": {"accuracy": 0.25 * number, "loss": None},
        "silos": silos if number else [],
        "seconds": {"train": 1.5} if number else {},
        "bytesUp": 44_700_000 * number,
        "bytesDown": 0,
        "contributions": {},
        "checksum": "0",
    }


def test_starting_imports_neither_torch_nor_grpc_nor_mlflow_nor_kubernetes() -> None:
    code = (
        "import sys, fedctl.main, fedctl.local_run, fedctl.research.bench_rounds, fedctl.inspection, fedctl.methods, "
        "fedctl.model_pull, fedctl.validation, fedctl.choice, fedctl.doctor, fedctl.invitation, fedctl.admission; "
        "print(sorted({'torch', 'grpc', 'mlflow', 'kubernetes', 'websocket'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_version_and_help() -> None:
    assert fedctl("version").output.startswith("fedctl ")
    assert json.loads(fedctl("version", "-o", "json").output).keys() == {"version"}
    manual = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    for command in ("run", "validate", "status", "silos", "rounds", "events", "logs", "doctor", "version"):
        assert command in fedctl("--help").output and f"`{command}" in manual


def test_help_lists_every_command_once_under_who_uses_it() -> None:
    commands = get_command(app)
    assert isinstance(commands, TyperGroup)
    text = fedctl("--help").output
    listed = re.findall(r"^  ([a-z]+)  ", text, re.MULTILINE)
    assert sorted(listed) == sorted(commands.commands)
    research = text.split("\nResearch:\n")[1].split("\n\n")[0]
    assert re.findall(r"^  ([a-z]+)  ", research, re.MULTILINE) == ["simulate", "study", "compare", "bench"]


def test_every_exit_code_of_the_catalogue_is_in_the_manual() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", manual, re.MULTILINE)}
    assert {failure.exit_code for failure in CATALOGUE.values()} <= listed


def test_validate_says_what_is_in_a_good_file(file: Path) -> None:
    assert "federation tiny, FedAvg on SmallCnn, 4 rounds, 2 silos (a, b)" in fedctl("validate", "-f", file).output
    assert json.loads(fedctl("validate", "-f", file, "-o", "json").output)["valid"] is True


def test_validate_lists_every_mistake_for_programs(file: Path) -> None:
    result = fedctl("validate", "-f", file, "--set", "spec.rounds=0", "--set", "spec.seeed=1", "-o", "json")
    codes = {mistake["code"] for mistake in json.loads(result.stdout)["mistakes"]}
    assert (
        codes == {documents.OUT_OF_RANGE.code, documents.UNKNOWN_FIELD.code} and refused(result).failure.exit_code == 2
    )


def test_a_failure_is_one_line_and_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def command() -> None:
        app(["validate", "-f", str(tmp_path / "missing.yaml")])

    assert ending(command) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("ANC-1001 FileUnreadable: ") and lines[1:] == ["see fedctl explain ANC-1001"]


def test_a_wrong_option_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(lambda: app(["run", "--nothing"])) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_status_of_a_run_that_was_interrupted_does_not_look_alive(left: Workdir) -> None:
    federation = json.loads(fedctl("status", "--workdir", left.root, "-o", "json").output)
    status = federation["status"]
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"], status["connectedSilos"]) == ("False", "NotRunning", 0)
    assert federation["spec"]["rounds"] == 4 and not any(silo["connected"] for silo in status["silos"])
    text = fedctl("status", "--workdir", left.root).output
    assert "Ready=False" in text and "NotRunning" in text and "2/4" in text and "accuracy 0.75" in text


def conditions(status: FederationStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status.conditions}


def test_nobody_works_in_a_run_that_was_killed(left: Workdir) -> None:
    busy = [
        SiloStatus(name=state[:1].lower(), connected=True, state=state, task="Train", progress=34) for state in WORK
    ]
    silos = (*busy, SiloStatus(name="z", state="Late", code="ANC-3006"))
    said = (condition("Ready", "True"), condition("QuorumMet", "True"), condition("Tracked", "Unknown"))
    status = FederationStatus(conditions=said, round=2, rounds=4, step="train", silos_summary="5/5", silos=silos)
    leave(left, status)
    rows = {row["name"]: row for row in json.loads(fedctl("silos", "--workdir", left.root, "-o", "json").output)}
    assert {(row["connected"], row["task"], row["progress"]) for row in rows.values()} == {(False, "", 0)}
    assert {name: row["state"] for name, row in rows.items()} == {**dict.fromkeys("taue", "Waiting"), "z": "Late"}
    seen, live = observe(left)
    assert (live, seen.step, seen.connected_silos, seen.silos_summary) == (False, "", 0, "0/5")
    assert conditions(seen) == {
        "Ready": ("False", "NotRunning"),
        "QuorumMet": ("Unknown", "NotRunning"),
        "Tracked": ("False", "NotRunning"),
    }
    assert "%" not in fedctl("silos", "--workdir", left.root).output
    text = fedctl("status", "--workdir", left.root).output
    assert "0/5" in text and "MLflow: NotRunning, the server ended before MLflow had everything" in text


WORK = ("Training", "Announced", "Uploading", "Evaluating")


def test_a_run_that_starts_again_is_not_the_one_that_failed(left: Workdir) -> None:
    leave(left, last_status(left).model_copy(update={"conditions": (condition("Failed", "True"),)}))
    assert conditions(observe(left)[0])["Failed"] == ("True", "Running")
    with left.lock():
        assert conditions(observe(left)[0]) == {
            "Failed": ("False", "Starting"),
            "Ready": ("False", "Starting"),
            "QuorumMet": ("Unknown", "Starting"),
            "Succeeded": ("Unknown", "Starting"),
        }


def test_the_end_of_a_run_is_no_warning(left: Workdir) -> None:
    done = condition("Succeeded", "True").model_copy(update={"reason": "AllRoundsCommitted"})
    over = (condition("Ready", "True"), done, condition("Tracked", "True"))
    leave(left, last_status(left).model_copy(update={"conditions": over}))
    assert conditions(observe(left)[0])["Ready"] == ("False", "AllRoundsCommitted")
    events = json.loads(fedctl("events", "--workdir", left.root, "-o", "json").output)
    assert {event["type"] for event in events if "=" in event["message"]} == {"Normal"}


def test_status_as_yaml_is_read_again(left: Workdir) -> None:
    values = yaml.safe_load(fedctl("status", "--workdir", left.root, "-o", "yaml").output)
    assert values["status"]["round"] == 2


def test_silos_and_rounds(left: Workdir) -> None:
    assert "ANC-3004 NaN" in fedctl("silos", "--workdir", left.root).output
    table = fedctl("rounds", "--workdir", left.root, "-o", "wide").output
    assert "89.4 MB" in table and "1/2" in table and "b: ANC-3004 NaN" in table
    rounds = json.loads(fedctl("rounds", "--workdir", left.root, "-o", "json").output)
    assert [r["round"] for r in rounds] == [0, 1, 2] and "checksum" not in rounds[0]


def test_runs_are_found_by_name(left: Workdir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(fedctl("status")).failure is commands.NO_RUN_HERE
    Path(".anchorage").mkdir()
    left.root.rename(".anchorage/tiny")
    assert "2/4" in fedctl("status").output and "2/4" in fedctl("status", "tiny").output
    assert refused(fedctl("status", "other")).failure is commands.NO_RUN_HERE


def test_logs_are_written_for_people(left: Workdir) -> None:
    lines = [{"time": "12:00", "level": "INFO", "logger": "x", "message": "round committed", "round": 1}, "plain"]
    left.log("server").write_text("old\n" + json.dumps(lines[0]) + "\nANC-3001 QuorumLost: gone\n")
    left.log("a").write_text("hello\n")
    both = fedctl("logs", "--workdir", left.root, "--tail", 2).output.splitlines()
    assert both == ["a: hello", "server: 12:00 INFO round committed round=1", "server: ANC-3001 QuorumLost: gone"]
    assert fedctl("logs", "--workdir", left.root, "--process", "a").output == "hello\n"
    assert refused(fedctl("logs", "--workdir", left.root, "--process", "z")).failure is commands.NO_RUN_HERE


def test_the_last_committed_model_is_pulled_without_the_methods_state(left: Workdir, tmp_path: Path) -> None:
    out = tmp_path / "out"
    facts = json.loads(fedctl("model", "pull", "--workdir", left.root, "--out", out, "-o", "json").output)
    pulled = read_safetensors(out / "model.safetensors").model
    assert facts["round"] == 2 and pulled.digest == facts["digest"] and set(pulled.arrays()) == {"w", "n"}
    told = fedctl("model", "pull", "--workdir", left.root, "--out", out).output
    assert "round 2, the last committed one of a run that is not over, digest" in told
    assert (
        refused(fedctl("model", "pull", "--workdir", left.root, "--out", out, "--best")).failure
        is commands.NO_MODEL_YET
    )


def test_a_damaged_model_is_not_pulled(left: Workdir, tmp_path: Path) -> None:
    path = left.server / "round-000002.safetensors"
    tensors = read_safetensors(path).model.arrays()
    tensors["w"] = tensors["w"] + 1
    layout = Layout.of([("w", "F32", (3,)), ("n", "I64", ())])
    write_safetensors(path, ModelBytes.from_arrays(layout, tensors))
    result = fedctl("model", "pull", "--workdir", left.root, "--out", tmp_path / "out")
    assert refused(result).failure is storage.TENSOR_FILE_UNUSABLE and not (tmp_path / "out").exists()


def test_methods_are_listed_and_described() -> None:
    assert [method["name"] for method in json.loads(fedctl("methods", "list", "-o", "json").output)] == list(PRESETS)
    text = fedctl("methods", "describe", "FedAnchor").output
    assert "pseudoLabels.anchorSimilarity.threshold" in text and "prototypes" in text
    assert "accuracy 0.7782 ± 0.0049" in fedctl("methods", "describe", "SemiFL").output
    found = json.loads(fedctl("methods", "describe", "FedAvgSemi", "-o", "json").output)["published"]
    assert [result["value"] for result in found] == [0.6779, 0.4021] and found[0]["method"] == "FedAvg-Semi"
    assert refused(fedctl("methods", "describe", "FedSGD")).failure is documents.UNKNOWN_METHOD


def test_tables_fit_a_narrow_terminal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr("fedctl.methods.people", lambda: Console(width=80))
    monkeypatch.setattr("fedctl.research.partition.people", lambda: Console(width=80))
    listed = fedctl("methods", "list").output.splitlines()
    assert set(PRESETS) <= set(listed) and max(map(len, listed)) <= 80
    parts = fedctl("data", "partition", "-f", file).output.splitlines()
    assert len(parts) == 4 and max(map(len, parts)) <= 80


def test_a_partition_is_drawn_and_checked(file: Path) -> None:
    pytest.importorskip("sklearn")
    parts = json.loads(fedctl("data", "partition", "-f", file, "-o", "json").output)
    assert list(parts) == ["validation", "a", "b"] and sum(part["images"] for part in parts.values()) == 1797
    assert parts["a"]["labelled"] == parts["a"]["counts"]
    assert "█" in fedctl("data", "partition", "-f", file).output
    report = json.loads(fedctl("data", "check", "-f", file, "--silo", "a", "-o", "json").output)
    assert report["a"]["usable"] == parts["a"]["images"]
    assert refused(fedctl("data", "check", "-f", file, "--silo", "z")).failure.exit_code == 2


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
    kept = sorted(run.server.rglob("*"))
    with pytest.raises(AnchorageError, match=r"spec\.seed is 7") as caught:
        claim(run, validate_study(file, ["spec.seed=7"]))
    assert caught.value.failure is commands.WORKDIR_TAKEN
    file.write_text("labels: Partial".join(DOCUMENTS.rsplit("labels: All", 1)))
    claim(run, validate_study(file))  # of silo b no update was counted
    run.federation.write_text("kind: Federation\nspec: {of: an earlier version}\n")
    with pytest.raises(DocumentError):
        claim(run, validate_study(file))
    assert sorted(run.server.rglob("*")) == kept


def test_results_are_tracked_where_the_documents_say(left: Workdir, file: Path) -> None:
    federation = claim(left, validate_study(file))
    place = TrackingStatus(uri=left.tracking_uri)
    for status, uri, complete in (
        ("True", left.tracking_uri, True),
        ("False", left.tracking_uri, False),
        ("True", "o", False),
    ):
        update = {"conditions": (condition("Tracked", status),), "tracking": place.model_copy(update={"uri": uri})}
        leave(left, last_status(left).model_copy(update=update))
        assert is_tracked(left, federation) is complete


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


def test_a_run_is_finished_when_every_round_is_committed_and_the_model_stored(left: Workdir, file: Path) -> None:
    federation = validate_study(file).federation
    assert not already_finished(left, federation)
    stored = {name: StoredModel(path=str(left.root / name), digest="d") for name in ("model", "best_model")}
    done = {"conditions": (condition("Succeeded", "True"),), "round": 4, **stored}
    leave(left, last_status(left).model_copy(update=done))
    assert not already_finished(left, federation), "the files are gone"
    (left.root / "model").touch()
    (left.root / "best_model").touch()
    assert already_finished(left, federation)
    more = federation.model_copy(update={"spec": federation.spec.model_copy(update={"rounds": 5})})
    assert not already_finished(left, more)

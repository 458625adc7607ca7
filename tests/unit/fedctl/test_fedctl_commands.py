"""Commands in this process, on documents and on what a run left."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from left_run import condition, leave
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from anchorage.api.errors import CATALOGUE, AnchorageError, commands, documents, storage
from anchorage.api.status import (
    FederationStatus,
    SiloStatus,
)
from anchorage.methods import PRESETS
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_safetensors, write_safetensors
from fedctl.failures import ending
from fedctl.main import app
from fedctl.observation import last_status, observe
from fedctl.workdir import Workdir


def fedctl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result: Result) -> AnchorageError:
    assert isinstance(result.exception, AnchorageError), result.output
    return result.exception


def test_starting_imports_neither_torch_nor_grpc_nor_mlflow_nor_kubernetes() -> None:
    code = (
        "import sys, fedctl.main, fedctl.local_run, fedctl.research.bench_rounds, fedctl.inspection, fedctl.methods, "
        "fedctl.model_pull, fedctl.validation, fedctl.choice, fedctl.doctor, fedctl.invitation, fedctl.admission; "
        "print(sorted({'torch', 'grpc', 'mlflow', 'kubernetes', 'websocket'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_what_every_command_loads_is_small() -> None:
    code = "import sys, fedctl.main; print(sorted({'pydantic', 'yaml', 'numpy'} & set(sys.modules)))"
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
    assert re.findall(r"^  ([a-z]+)  ", research, re.MULTILINE) == ["simulate", "study", "tune", "compare", "bench"]


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


def test_status_of_a_run_that_was_interrupted_does_not_look_alive(killed_run: Workdir) -> None:
    federation = json.loads(fedctl("status", "--workdir", killed_run.root, "-o", "json").output)
    status = federation["status"]
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"], status["connectedSilos"]) == ("False", "NotRunning", 0)
    assert federation["spec"]["rounds"] == 4 and not any(silo["connected"] for silo in status["silos"])
    text = fedctl("status", "--workdir", killed_run.root).output
    assert "Ready=False" in text and "NotRunning" in text and "2/4" in text and "accuracy 0.75" in text


def conditions(status: FederationStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status.conditions}


def test_nobody_works_in_a_run_that_was_killed(killed_run: Workdir) -> None:
    busy = [
        SiloStatus(name=state[:1].lower(), connected=True, state=state, task="Train", progress=34) for state in WORK
    ]
    silos = (*busy, SiloStatus(name="z", state="Late", code="ANC-3006"))
    healthy_conditions = (condition("Ready", "True"), condition("QuorumMet", "True"), condition("Tracked", "Unknown"))
    status = FederationStatus(
        conditions=healthy_conditions, round=2, rounds=4, step="train", silos_summary="5/5", silos=silos
    )
    leave(killed_run, status)
    rows = {row["name"]: row for row in json.loads(fedctl("silos", "--workdir", killed_run.root, "-o", "json").output)}
    assert {(row["connected"], row["task"], row["progress"]) for row in rows.values()} == {(False, "", 0)}
    assert {name: row["state"] for name, row in rows.items()} == {**dict.fromkeys("taue", "Waiting"), "z": "Late"}
    observed_status, live = observe(killed_run)
    assert (live, observed_status.step, observed_status.connected_silos, observed_status.silos_summary) == (
        False,
        "",
        0,
        "0/5",
    )
    assert conditions(observed_status) == {
        "Ready": ("False", "NotRunning"),
        "QuorumMet": ("Unknown", "NotRunning"),
        "Tracked": ("False", "NotRunning"),
    }
    assert "%" not in fedctl("silos", "--workdir", killed_run.root).output
    text = fedctl("status", "--workdir", killed_run.root).output
    assert "0/5" in text and "MLflow: NotRunning, the server ended before MLflow had everything" in text


WORK = ("Training", "Announced", "Uploading", "Evaluating")


def test_a_run_that_starts_again_is_not_the_one_that_failed(killed_run: Workdir) -> None:
    leave(killed_run, last_status(killed_run).model_copy(update={"conditions": (condition("Failed", "True"),)}))
    assert conditions(observe(killed_run)[0])["Failed"] == ("True", "Running")
    with killed_run.lock():
        assert conditions(observe(killed_run)[0]) == {
            "Failed": ("False", "Starting"),
            "Ready": ("False", "Starting"),
            "QuorumMet": ("Unknown", "Starting"),
            "Succeeded": ("Unknown", "Starting"),
        }


def test_the_end_of_a_run_is_no_warning(killed_run: Workdir) -> None:
    done = condition("Succeeded", "True").model_copy(update={"reason": "AllRoundsCommitted"})
    over = (condition("Ready", "True"), done, condition("Tracked", "True"))
    leave(killed_run, last_status(killed_run).model_copy(update={"conditions": over}))
    assert conditions(observe(killed_run)[0])["Ready"] == ("False", "AllRoundsCommitted")
    events = json.loads(fedctl("events", "--workdir", killed_run.root, "-o", "json").output)
    assert {event["type"] for event in events if "=" in event["message"]} == {"Normal"}


def test_status_as_yaml_is_read_again(killed_run: Workdir) -> None:
    values = yaml.safe_load(fedctl("status", "--workdir", killed_run.root, "-o", "yaml").output)
    assert values["status"]["round"] == 2


def test_silos_and_rounds(killed_run: Workdir) -> None:
    assert "ANC-3004 NaN" in fedctl("silos", "--workdir", killed_run.root).output
    table = fedctl("rounds", "--workdir", killed_run.root, "-o", "wide").output
    assert "89.4 MB" in table and "1/2" in table and "b: ANC-3004 NaN" in table
    rounds = json.loads(fedctl("rounds", "--workdir", killed_run.root, "-o", "json").output)
    assert [r["round"] for r in rounds] == [0, 1, 2] and "checksum" not in rounds[0]


def test_runs_are_found_by_name(killed_run: Workdir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(fedctl("status")).failure is commands.NO_RUN_HERE
    Path(".anchorage").mkdir()
    killed_run.root.rename(".anchorage/tiny")
    assert "2/4" in fedctl("status").output and "2/4" in fedctl("status", "tiny").output
    assert refused(fedctl("status", "other")).failure is commands.NO_RUN_HERE


def test_logs_are_written_for_people(killed_run: Workdir) -> None:
    lines = [{"time": "12:00", "level": "INFO", "logger": "x", "message": "round committed", "round": 1}, "plain"]
    killed_run.log("server").write_text("old\n" + json.dumps(lines[0]) + "\nANC-3001 QuorumLost: gone\n")
    killed_run.log("a").write_text("hello\n")
    both = fedctl("logs", "--workdir", killed_run.root, "--tail", 2).output.splitlines()
    assert both == ["a: hello", "server: 12:00 INFO round committed round=1", "server: ANC-3001 QuorumLost: gone"]
    assert fedctl("logs", "--workdir", killed_run.root, "--process", "a").output == "hello\n"
    assert refused(fedctl("logs", "--workdir", killed_run.root, "--process", "z")).failure is commands.NO_RUN_HERE


def test_the_last_committed_model_is_pulled_without_the_methods_state(killed_run: Workdir, tmp_path: Path) -> None:
    out = tmp_path / "out"
    facts = json.loads(fedctl("model", "pull", "--workdir", killed_run.root, "--out", out, "-o", "json").output)
    pulled = read_safetensors(out / "model.safetensors").model
    assert facts["round"] == 2 and pulled.digest == facts["digest"] and set(pulled.arrays()) == {"w", "n"}
    assert (facts["role"], facts["score"]) == (
        "checkpoint",
        {"metric": "accuracy", "value": 0.5, "images": "validation images"},
    )
    output = fedctl("model", "pull", "--workdir", killed_run.root, "--out", out, "--force").output
    scored = "round 2, accuracy 0.500 on the validation images"
    assert f"the last committed model of a run that is not over: {scored}, digest" in output


def test_a_pulled_model_is_overwritten_only_on_request(killed_run: Workdir, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    pull = ("model", "pull", "--workdir", killed_run.root, "--out", out)
    (out / "model.json").write_text("mine")
    refusal = fedctl(*pull)
    assert refusal.exit_code == 2 and "--force" in refusal.output
    assert [path.name for path in out.iterdir()] == ["model.json"]
    assert (out / "model.json").read_text() == "mine"
    assert fedctl(*pull, "--force").exit_code == 0 and (out / "model.safetensors").exists()


def test_a_damaged_model_is_not_pulled(killed_run: Workdir, tmp_path: Path) -> None:
    path = killed_run.server / "round-000002.safetensors"
    tensors = read_safetensors(path).model.arrays()
    tensors["w"] = tensors["w"] + 1
    layout = Layout.of([("w", "F32", (3,)), ("n", "I64", ())])
    write_safetensors(path, ModelBytes.from_arrays(layout, tensors))
    result = fedctl("model", "pull", "--workdir", killed_run.root, "--out", tmp_path / "out")
    assert refused(result).failure is storage.TENSOR_FILE_UNUSABLE and not (tmp_path / "out").exists()


def test_methods_are_listed_and_described() -> None:
    assert [method["name"] for method in json.loads(fedctl("methods", "list", "-o", "json").output)] == list(PRESETS)
    text = fedctl("methods", "describe", "FedAnchor").output
    assert "pseudoLabels.anchorSimilarity.threshold" in text and "prototypes" in text
    assert "accuracy 0.7782 ± 0.0049" in fedctl("methods", "describe", "SemiFL").output
    published = json.loads(fedctl("methods", "describe", "FedAvgSemi", "-o", "json").output)["published"]
    assert [result["value"] for result in published] == [0.6779, 0.4021] and published[0]["method"] == "FedAvg-Semi"
    plain, library = (
        json.loads(fedctl("methods", "describe", name, "-o", "json").output) for name in ("ResNet18", "timm/")
    )
    assert plain[0]["options"] == {} and list(library[0]["options"]) == ["member"]
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

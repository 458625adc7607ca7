"""``fedctl run`` with the real processes: two silos, a few rounds, real sockets, certificates and files."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from time import monotonic
from typing import Any

import psutil
import pytest

from anchorage.api.model_card import ModelCard

pytest.importorskip("sklearn")

PATIENCE_SECONDS = 800.0
ROUNDS = 12

FEDERATION = """
kind: Federation
metadata: {{name: tiny}}
spec:
  rounds: {rounds}
  task: {{classification: {{classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}}}
  model: {{network: SmallCnn, imageSize: 8, channels: 1, augmentation: Digits}}
  method: {{name: FedAvg, local: {{epochs: 1, batchSize: 50}}}}
  protocol: {{minSilos: 2, roundDeadlineSeconds: 600}}
  evaluation: {{validation: {{format: Digits, use: Test, testPercent: 20}}}}
"""
SILO = """
---
kind: Silo
metadata: {{name: silo-{part}}}
spec:
  federation: tiny
  labels: All
  managed: {{data: {{format: Digits, use: Part, testPercent: 20, partition: {{recipe: Iid, parts: 8, part: {part}}}}}}}
"""


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.yaml"
    path.write_text(FEDERATION.format(rounds=ROUNDS) + SILO.format(part=0) + SILO.format(part=1))
    return path


class Command:
    """A `fedctl` process whose lines on stderr can be waited for."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedctl.main", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=next((path.parent for path in arguments if isinstance(path, Path)), None),
        )
        self.lines: list[str] = []
        self.stdout = ""
        self._queue: Queue[str | None] = Queue()
        self._readers = [Thread(target=self._read_errors, daemon=True), Thread(target=self._read_output, daemon=True)]
        for reader in self._readers:
            reader.start()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        self.stdout = self.process.stdout.read()

    def wait_for(self, part: str) -> str:
        """Return the first line on stderr, from where the last wait ended, that holds `part`."""
        deadline = monotonic() + PATIENCE_SECONDS
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - monotonic()))
            except Empty:
                pytest.fail(f"no line with {part!r} in {self.lines}")
            if line is None:
                pytest.fail(f"ended without a line with {part!r}: {self.lines}")
            self.lines.append(line)
            if part in line:
                return line

    def end(self) -> int:
        """Wait for the end and return the exit status."""
        status = self.process.wait(timeout=PATIENCE_SECONDS)
        for reader, stream in zip(self._readers, (self.process.stderr, self.process.stdout), strict=True):
            reader.join(timeout=PATIENCE_SECONDS)
            assert stream is not None
            stream.close()
        while not self._queue.empty():
            line = self._queue.get()
            self.lines += [line] if line is not None else []
        return status


@pytest.fixture
def fedctl() -> Any:
    started: list[Command] = []

    def start(*arguments: object) -> Command:
        started.append(Command(*arguments))
        return started[-1]

    yield start
    for command in started:
        command.process.send_signal(signal.SIGTERM)
        command.end()


Start = Callable[..., Command]


def processes(lines: list[str]) -> dict[str, int]:
    """Return the process ids by the names in the lines ``started silo NAME, process PID``."""
    results = {}
    for line in lines:
        if line.startswith("started "):
            name, _, pid = line.removeprefix("started ").partition(", process ")
            results[name.removeprefix("silo ").removeprefix("the ")] = int(pid)
    return results


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Keep a process from running."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def gone(pids: dict[str, int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids.values())


def document(command: Command) -> Any:
    assert command.end() == 0, command.lines
    return json.loads(command.stdout)


@pytest.fixture(scope="session")
def undisturbed(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[str]]:
    """Run once without disturbance: the working folder, the document, the lines on stderr."""
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    command = Command("run", "-f", file, "--workdir", workdir, "-o", "json")
    return workdir, document(command), command.lines


def test_the_document_says_what_came_out(undisturbed: tuple[Path, Any, list[str]]) -> None:
    workdir, federation, lines = undisturbed
    status = federation["status"]
    metrics = {metric["name"]: float(metric["value"]) for metric in status["metrics"]}
    assert federation["kind"] == "Federation" and federation["metadata"]["name"] == "tiny"
    assert status["round"] == status["rounds"] == ROUNDS and status["progressPercentage"] == 100
    assert 0.2 < metrics["accuracy"] <= 1
    assert Path(status["model"]["path"]).is_file() and Path(status["model"]["path"]).is_relative_to(workdir)
    assert len(status["model"]["digest"]) == 64 and status["model"]["round"] == ROUNDS
    assert {c["type"]: c["status"] for c in status["conditions"]}["Succeeded"] == "True"
    assert status["tracking"]["uri"] == f"sqlite:///{workdir / 'mlflow.db'}"
    assert (conditions(status)["Tracked"], status["tracking"]["modelVersion"]) == ("Sent", best_version(status))
    assert len(set(processes(lines).values())) == 3 and gone(processes(lines))
    assert "training at each of silo-0, silo-1 alone, for comparison; --no-compare leaves it out" in lines
    card = ModelCard.model_validate_json((workdir / "server" / "model" / "model-card.json").read_bytes())
    assert card.sites_alone is not None and list(card.sites_alone) == ["silo-0", "silo-1"]
    assert all(0.1 < metrics["accuracy"] <= 1 for metrics in card.sites_alone.values())
    assert [silo.missed for silo in card.silos] == [0, 0]


def test_the_bytes_are_those_that_were_planned(
    undisturbed: tuple[Path, Any, list[str]], file: Path, fedctl: Start
) -> None:
    _, federation, _ = undisturbed
    plan = document(fedctl("plan", "-f", file, "--no-trial", "-o", "json"))
    assert (plan["bytes"]["up"], plan["bytes"]["down"]) == pytest.approx(
        (federation["status"]["bytesUp"], federation["status"]["bytesDown"]), rel=0.01
    )


def test_every_silo_made_its_own_key_and_the_authoritys_stays_in_its_folder(
    undisturbed: tuple[Path, Any, list[str]],
) -> None:
    workdir, _, _ = undisturbed
    keys = sorted(path for path in workdir.rglob("*.key"))
    assert [path.relative_to(workdir).parts[0] for path in keys].count("authority") == 1
    # a silo has one for its audit log, and one for the names of its images, too
    assert len(keys) == 8 and len({path.read_bytes() for path in keys}) == 8
    assert all(path.stat().st_mode & 0o077 == 0 for path in keys)
    assert (workdir / "authority").stat().st_mode & 0o077 == 0
    for log in (workdir / "logs").iterdir():
        assert "PRIVATE KEY" not in log.read_text()


def test_running_again_prints_the_same_and_starts_nothing(
    undisturbed: tuple[Path, Any, list[str]], file: Path, fedctl: Start
) -> None:
    workdir, federation, _ = undisturbed
    second_output = fedctl("run", "-f", file, "--workdir", workdir, "-o", "json")
    assert document(second_output) == federation
    assert processes(second_output.lines) == {}


def test_another_federations_folder_is_refused(
    undisturbed: tuple[Path, Any, list[str]], file: Path, fedctl: Start
) -> None:
    workdir, _, _ = undisturbed
    other = fedctl("run", "-f", file, "--workdir", workdir, "--set", "spec.seed=2")
    assert other.end() == 2
    assert other.lines[0].startswith("ANC-5001 WorkdirTaken: ") and "spec.seed" in other.lines[0]


def test_a_run_is_watched_interrupted_resumed_and_its_processes_killed_and_the_result_is_the_same(
    undisturbed: tuple[Path, Any, list[str]], file: Path, tmp_path: Path, fedctl: Start
) -> None:
    run = ("--workdir", tmp_path / "run", "-o", "json")
    first = fedctl("run", "-f", file, "--no-compare", *run)
    first.wait_for("started silo silo-1")
    with stopped(processes(first.lines)["silo-1"]):  # no round begins without it, however long the others take
        first.wait_for("silo silo-0 connected")
        second = fedctl("run", "-f", file, "--no-compare", *run)
        status = document(fedctl("status", *run))["status"]
        assert second.end() == 2 and second.lines[0].startswith("ANC-5002 WorkdirBusy: ")
        assert conditions(status)["Ready"] == "Listening" and status["connectedSilos"] == 1 and status["round"] == 0
    first.wait_for("silo silo-1 connected")
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 130 and gone(processes(first.lines))
    assert "the same command goes on" in first.lines[-1] and not any("Traceback" in line for line in first.lines)
    last_status = document(fedctl("status", *run))["status"]
    assert conditions(last_status)["Ready"] == "NotRunning" and last_status["connectedSilos"] == 0
    messages = {condition["type"]: condition["message"] for condition in last_status["conditions"]}
    assert messages["Succeeded"].startswith("received SIGINT; ")
    assert {(silo["connected"], silo["task"]) for silo in last_status["silos"]} == {(False, "")}
    second_output = fedctl("run", "-f", file, "--no-compare", *run)
    second_output.wait_for("committed")
    for child in psutil.Process(second_output.process.pid).children():
        if "fedctl.shared_imports" in child.cmdline():
            child.kill()  # the trainers are lost with it; others import for themselves
    for name in ("silo-1", "server"):
        second_output.wait_for("committed")
        os.kill(processes(second_output.lines)[name], signal.SIGKILL)
        second_output.wait_for("restarting")
    status = document(second_output)["status"]
    assert status["model"]["digest"] == undisturbed[1]["status"]["model"]["digest"] and status["round"] == ROUNDS


def test_what_mlflow_does_not_have_is_told_and_sent_by_the_same_command(
    file: Path, tmp_path: Path, fedctl: Start
) -> None:
    run = ("run", "-f", file, "--no-compare", "--workdir", tmp_path / "run", "--set", "spec.rounds=1")
    nowhere = ("--set", "spec.tracking.uri=http://127.0.0.1:9")  # discard: nobody listens
    first = fedctl(*run, *nowhere)
    assert first.end() == 7
    assert "incomplete    ANC-4001 TrackingUnreachable: 5 records are not in MLflow yet: " in first.stdout
    assert first.lines[-2].startswith("ANC-4001 TrackingUnreachable: 5 records are not in MLflow yet: ")
    assert first.lines[-1] == "see fedctl explain ANC-4001"
    status = document(fedctl("status", "--workdir", tmp_path / "run", "-o", "json"))["status"]
    assert (conditions(status)["Succeeded"], conditions(status)["Tracked"]) == (
        "AllRoundsCommitted",
        "TrackingUnreachable",
    )
    second = fedctl(*run, *nowhere, "-o", "json")
    assert second.end() == 7 and processes(second.lines).keys() == {"server"}
    second_output = fedctl(*run, "-o", "json")
    status = document(second_output)["status"]
    assert processes(second_output.lines).keys() == {"server"}, "nothing is trained again"
    version = best_version(status)
    assert (conditions(status)["Tracked"], status["tracking"]["modelVersion"]) == ("Sent", version)
    last = fedctl(*run)
    assert last.end() == 0 and "finished before" in last.stdout
    assert f"registered    tiny version {version}" in last.stdout
    assert processes(last.lines) == {}


def best_version(status: Any) -> str:
    """Return the version of the best model, which is registered after the last one unless it is the same."""
    return "1" if status["bestModel"]["digest"] == status["model"]["digest"] else "2"


def conditions(status: Any) -> dict[str, str]:
    """Return the reasons by condition."""
    return {condition["type"]: condition["reason"] for condition in status["conditions"]}


def test_a_silo_whose_data_is_wrong_ends_the_run_with_its_code(file: Path, tmp_path: Path, fedctl: Start) -> None:
    text = file.read_text().replace(
        "format: Digits, use: Part, testPercent: 20, partition: {recipe: Iid, parts: 8, part: 1}",
        "format: ImageFolder, claimName: nowhere",
    )
    broken = tmp_path / "broken.yaml"
    broken.write_text(text)
    command = fedctl("run", "-f", broken, "--workdir", tmp_path / "run")
    assert command.end() == 3
    assert command.lines[-2].startswith("ANC-12") and "silo-1" in command.lines[-2]
    assert gone(processes(command.lines))


def test_the_benchmark_plays_its_rounds(tmp_path: Path, fedctl: Start) -> None:
    command = fedctl("bench", "rounds", "--silos", 2, "--copies", 1, "--rounds", 2, "--work", tmp_path)
    assert command.end() == 0, command.lines
    events = [json.loads(line) for line in command.stdout.splitlines()]
    assert [event.get("role") for event in events[:3]] == ["server", "silo", "silo"]
    assert [event.get("round") for event in events[3:6]] == [0, 1, 2]
    times = [event["t"] for event in events[3:6]]
    assert times == sorted(times) and len({event["pid"] for event in events[:3]}) == 3
    assert events[6]["event"] == "final" and events[6]["error"] < 1e-6 and len(events) == 7

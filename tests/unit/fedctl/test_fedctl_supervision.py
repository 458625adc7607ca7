"""The supervisor with real processes that are told, through named pipes, when and how to end."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import psutil
import pytest

from anchorage.api.errors import AnchorageError, commands, data, learning, storage
from anchorage.transport.retry import RetryPolicy
from fedctl import supervision
from fedctl.processes import Child, Ended, InterruptError, ProcessEvent, end_all
from fedctl.supervision import Plan, Supervisor
from fedctl.workdir import Workdir

FAKE = """
import json, os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[2]).parent
starts = folder / "starts"
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
if {server!r} == "True":
    folder.joinpath("endpoints.json").write_text(json.dumps({{"silos": "h:1", "enrolment": "h:2", "status": "http://h:3"}}))
if folder.joinpath("stubborn").exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    folder.joinpath("ready").touch()
while True:
    with open(folder / "orders") as orders:
        order = orders.read()
    if order:
        break
status, _, line = order.partition(" ")
if line:
    sys.stderr.write(line + "\\n")
    sys.stderr.flush()
os._exit(int(status)) if int(status) >= 0 else os.kill(os.getpid(), -int(status))
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workdir:
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    for module, server in (("anchorage_server", "True"), ("anchorage_silo", "False")):
        (fakes / f"{module}.py").write_text(FAKE.format(server=server))
    monkeypatch.setenv("PYTHONPATH", str(fakes))
    monkeypatch.setattr(supervision, "RESTART", RetryPolicy(0.001))
    workdir = Workdir(tmp_path / "run")
    workdir.make()
    for name in ("server", "a", "b"):
        folder(workdir, name).mkdir(parents=True, exist_ok=True)
        os.mkfifo(folder(workdir, name) / "orders")
    return workdir


def folder(run: Workdir, name: str) -> Path:
    return run.server if name == "server" else run.silo(name)


def order(run: Workdir, name: str, what: str) -> None:
    """Tell a process how to end; from a thread, because opening the pipe waits for the process to read."""
    path = folder(run, name) / "orders"
    threading.Thread(target=path.write_text, args=(what,), daemon=True).start()


def starts(run: Workdir, name: str) -> int:
    path = folder(run, name) / "starts"
    return len(path.read_text()) if path.exists() else 0


@dataclass
class Script:
    """Does each act once its condition holds, in order."""

    run: Workdir
    acts: list[tuple[Callable[[Mapping[str, str]], bool], Callable[[], object]]]
    committed: int = -1
    pids: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def started(self, name: str, pid: int) -> None:
        self.pids[name] = pid

    def refresh(self, endpoints: Mapping[str, str] | None, processes: Mapping[str, str]) -> int:
        if self.acts and self.acts[0][0](processes):
            self.acts.pop(0)[1]()
        return self.committed

    def say(self, line: str) -> None:
        self.lines.append(line)


def play(run: Workdir, script: Script, min_silos: int = 1) -> None:
    configs: list[Mapping[str, str] | None] = []

    def server_config(endpoints: Mapping[str, str] | None) -> Path:
        configs.append(endpoints)
        return run.server / "server.yaml"

    plan = Plan(run, ("a", "b"), min_silos, server_config, lambda silo, endpoints: None, look_seconds=0.005)
    Supervisor(plan, script).play()


def all_running(processes: Mapping[str, str]) -> bool:
    return len(processes) == 3 and set(processes.values()) == {"running"}


def finish(run: Workdir) -> Callable[[], None]:
    def act() -> None:
        for name in ("server", "a", "b"):
            order(run, name, "0")

    return act


def gone(script: Script) -> bool:
    return not any(psutil.pid_exists(pid) for pid in script.pids.values())


def test_everything_is_started_and_ends_by_itself(run: Workdir) -> None:
    script = Script(run, [(all_running, finish(run))])
    play(run, script)
    assert len(set(script.pids.values()) | {os.getpid()}) == 4
    assert gone(script) and script.lines == []


@pytest.mark.parametrize("name", ["server", "a"])
def test_a_process_that_dies_is_started_again(run: Workdir, name: str) -> None:
    def kill() -> None:
        os.kill(script.pids[name], signal.SIGKILL)

    def again(processes: Mapping[str, str]) -> bool:
        return all_running(processes) and starts(run, name) == 2

    def once(processes: Mapping[str, str]) -> bool:
        return all_running(processes) and starts(run, name) == 1

    script = Script(run, [(once, kill), (again, finish(run))])
    play(run, script)
    assert "SIGKILL" in script.lines[0] and f"the {name} process" in script.lines[0] and gone(script)


def test_an_agent_that_refuses_its_data_ends_the_run(run: Workdir) -> None:
    code = next(iter(c for c in vars(data).values() if getattr(c, "exit_code", None) == 3))
    line = f"{code.code} {code.reason}: a.jpg is cut off"
    script = Script(run, [(all_running, lambda: order(run, "b", f"3 {line}"))])
    with pytest.raises(AnchorageError) as caught:
        play(run, script)
    assert caught.value.failure is code and caught.value.message == "silo b: a.jpg is cut off"
    assert gone(script)


def test_an_agent_whose_piece_is_wrong_ends_the_run(run: Workdir) -> None:
    line = f"{learning.PIECE_WRONG.code} {learning.PIECE_WRONG.reason}: localLoss acme.Focal raised KeyError"
    script = Script(run, [(all_running, lambda: order(run, "b", f"8 {line}"))])
    with pytest.raises(AnchorageError, match="silo b: localLoss acme.Focal raised KeyError") as caught:
        play(run, script)
    assert caught.value.failure is learning.PIECE_WRONG and starts(run, "b") == 1 and gone(script)


def test_the_servers_own_failure_ends_the_run(run: Workdir) -> None:
    line = f"{storage.DISK_FULL.code} {storage.DISK_FULL.reason}: no room in /state"
    script = Script(run, [(all_running, lambda: order(run, "server", f"6 {line}"))])
    with pytest.raises(AnchorageError, match="no room in /state") as caught:
        play(run, script)
    assert caught.value.failure is storage.DISK_FULL and starts(run, "server") == 1 and gone(script)


def test_an_agent_without_a_reason_is_given_up_in_the_end(run: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "MOST_RESTARTS", 2)

    def die(count: int) -> tuple[Callable[[Mapping[str, str]], bool], Callable[[], object]]:
        return (lambda p: all_running(p) and starts(run, "b") == count, lambda: order(run, "b", "1 Killed by the moon"))

    def others(processes: Mapping[str, str]) -> bool:
        return processes.get("b") == "ended"

    script = Script(run, [die(1), die(2), die(3), (others, finish(run))])
    play(run, script)
    assert starts(run, "b") == 3 and "Killed by the moon" in script.lines[-1] and "1 silos are left" in script.lines[-1]


def test_too_few_agents_end_the_run(run: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "MOST_RESTARTS", 0)
    script = Script(run, [(all_running, lambda: order(run, "b", "1 Killed by the moon"))])
    with pytest.raises(AnchorageError, match="Killed by the moon") as caught:
        play(run, script, min_silos=2)
    assert caught.value.failure is commands.PROCESS_DIED and gone(script)


def test_a_committed_round_gives_the_restarts_back(run: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "MOST_RESTARTS", 1)

    def die(count: int) -> tuple[Callable[[Mapping[str, str]], bool], Callable[[], object]]:
        def act() -> None:
            script.committed += 1
            order(run, "a", "1")

        return (lambda p: all_running(p) and starts(run, "a") == count, act)

    script = Script(run, [])
    script.acts = [die(1), die(2), die(3), (lambda p: all_running(p) and starts(run, "a") == 4, finish(run))]
    play(run, script, min_silos=2)
    assert starts(run, "a") == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_politely(run: Workdir, number: signal.Signals) -> None:
    def up(processes: Mapping[str, str]) -> bool:
        """Whether all have left their interpreter's start, in which Python now and then loses a SIGINT."""
        return all_running(processes) and all(starts(run, name) == 1 for name in ("server", "a", "b"))

    script = Script(run, [(up, lambda: os.kill(os.getpid(), number))])
    with pytest.raises(InterruptError) as caught:
        play(run, script)
    assert caught.value.number == number and gone(script) and script.lines == []


def test_a_process_that_ignores_the_request_is_killed(run: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "GRACE_SECONDS", 0.05)
    (run.silo("a") / "stubborn").touch()

    def ready(processes: Mapping[str, str]) -> bool:
        return all_running(processes) and (run.silo("a") / "ready").exists()

    script = Script(run, [(ready, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    with pytest.raises(InterruptError):
        play(run, script)
    assert gone(script) and "killed after 0.05 s: a" in script.lines[-1]


def test_a_server_that_never_listens_is_told(run: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "READY_SECONDS", 0.0)
    monkeypatch.setattr(supervision, "read_json", lambda path: None)
    script = Script(run, [])
    with pytest.raises(AnchorageError) as caught:
        play(run, script)
    assert caught.value.failure is commands.STATUS_UNREACHABLE and gone(script)


def waiting_child(run: Workdir, events: "SimpleQueue[ProcessEvent]") -> Child:
    """An agent's process that has imported what it needs, and waits."""
    arguments = ["-m", "anchorage_silo", "--config", str(run.silo_config("a"))]
    child = Child("a", arguments, run.silo("a"), run.log("a"), events, "json")
    child.prepare()
    return child


def test_a_prepared_process_becomes_the_agent_when_it_is_started(run: Workdir) -> None:
    events: SimpleQueue[ProcessEvent] = SimpleQueue()
    child = waiting_child(run, events)
    prepared = child.pid
    assert child.alive and starts(run, "a") == 0
    child.start()
    order(run, "a", "3")
    assert events.get(timeout=120) == Ended("a", 3)
    assert child.pid == prepared and starts(run, "a") == 1
    child.start()
    order(run, "a", "0")
    assert events.get(timeout=120) == Ended("a", 0)
    assert child.pid != prepared and starts(run, "a") == 2


def test_a_prepared_process_that_died_is_told_when_it_is_started(run: Workdir) -> None:
    events: SimpleQueue[ProcessEvent] = SimpleQueue()
    child = waiting_child(run, events)
    os.kill(child.pid, signal.SIGKILL)
    assert child.ended_within(120) and events.empty()
    child.start()
    assert events.get(timeout=120) == Ended("a", -signal.SIGKILL) and starts(run, "a") == 0


def test_a_prepared_process_that_is_never_started_can_be_ended(run: Workdir) -> None:
    child = waiting_child(run, SimpleQueue())
    assert end_all([child], 120.0) == [] and not psutil.pid_exists(child.pid) and starts(run, "a") == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells children of their parent's death")
def test_processes_end_when_the_runner_is_killed(run: Workdir, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from queue import SimpleQueue; from fedctl.processes import Child; import signal\n"
        f"child = Child('a', ['-m', 'anchorage_silo', '--config', {str(run.silo_config('a'))!r}], Path({str(tmp_path)!r}), "
        f"Path({str(tmp_path / 'log')!r}), SimpleQueue()); child.start(); print(child.pid, flush=True); signal.pause()"
    )
    runner = psutil.Popen([sys.executable, "-c", code], stdout=-1, text=True)
    child = psutil.Process(int(runner.stdout.readline()))
    runner.kill()
    runner.communicate()
    child.wait(timeout=120)

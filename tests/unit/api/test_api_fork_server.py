"""Processes that a fork server forks: they are as those that a command starts, and end with whoever asked for them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from forking import Forking, forking

from anchorage.api.fork_server import NUMBER, asking, inherited_socket

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork servers are for Linux")

PROGRAM = """
import json, os, signal, sys
FORKED = os.environ.get("SERVER")

def main():
    what, *arguments = sys.argv[1:]
    if what == "describe":
        sys.stderr.write("to stderr")
        print(json.dumps([FORKED, arguments, os.getcwd(), dict(os.environ), sys.stdin.read()]))
        return 7
    if what == "wait":
        print(os.getpid(), flush=True)
        signal.pause()
    if what == "signal":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), int(arguments[0]))
    if what == "sockets":
        files = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        links = [os.readlink(file) for file in files if os.path.lexists(file)]
        print(json.dumps([link for link in links if link.startswith("socket:")]))
    if what == "words":
        sys.exit("these words")
    if what == "defect":
        raise KeyError("a defect")

if __name__ == "__main__":
    sys.exit(main())
"""
COMMAND = (sys.executable, "-m", "forked_program")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "forked_program.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def server(place: Path) -> Iterator[Forking]:
    with forking(["forked_program"], {"PYTHONPATH": str(place), "SERVER": "by the server"}) as made:
        yield made


def test_a_forked_process_has_streams_arguments_folder_and_environment_of_the_one_that_asks(
    server: Forking, tmp_path: Path
) -> None:
    environment = {**os.environ, "SILO": "caf\u00e9 \udce9", "API_TOKEN": "secret", NUMBER: str(server.socket.fileno())}
    folder = tmp_path / "folder"
    folder.mkdir()
    with server.start([*COMMAND, "describe", "-x", "two words"], cwd=folder, env=environment) as asking_process:
        output, errors = asking_process.communicate("from stdin")
    imported, arguments, where, variables, read = json.loads(output)
    assert imported == "by the server", "the module was imported before"
    assert (arguments, where, read, errors) == (["-x", "two words"], str(folder), "from stdin", "to stderr")
    assert variables["SILO"] == environment["SILO"] and not {"API_TOKEN", "SERVER", NUMBER} & variables.keys()
    assert asking_process.returncode == 7


@pytest.mark.parametrize(
    ("what", "status", "printed"),
    [
        (["signal", str(int(signal.SIGTERM))], -signal.SIGTERM, ""),
        (["signal", str(int(signal.SIGKILL))], -signal.SIGKILL, ""),
        (["words"], 1, "these words\n"),
        (["defect"], 1, "KeyError: 'a defect'"),
        (["nothing"], 0, ""),
    ],
    ids=str,
)
def test_the_process_that_asked_ends_as_the_forked_one(
    server: Forking, what: list[str], status: int, printed: str
) -> None:
    with server.start([*COMMAND, *what]) as asking_process:
        _, errors = asking_process.communicate()
    assert asking_process.returncode == status and printed in errors and bool(errors) == bool(printed)


@pytest.mark.parametrize("ended", ["the one that asked", "the server"])
def test_a_forked_process_ends_with_others(server: Forking, ended: str) -> None:
    with server.start([*COMMAND, "wait"]) as asking_process:
        assert asking_process.stdout is not None
        forked = psutil.Process(int(asking_process.stdout.readline()))
        assert asking_process.pid != forked.pid
        (asking_process if ended == "the one that asked" else server.server).kill()
        assert asking_process.wait(60) == -signal.SIGKILL
        assert asking_process.stdout.read() == "", "the stream's other end is closed"
        forked.wait(60)


def test_a_forked_process_can_ask_for_no_other(server: Forking) -> None:
    """A confined process would have another one do what it may not."""
    with server.start([*COMMAND, "sockets"]) as asking_process:
        assert json.loads(asking_process.communicate()[0]) == []


def test_many_are_forked_at_once(server: Forking) -> None:
    processes = [server.start([*COMMAND, "describe", str(number)]) for number in range(8)]
    outputs = [json.loads(each.communicate("")[0]) for each in processes]
    assert [output[1] for output in outputs] == [[str(number)] for number in range(8)]


def test_without_a_fork_server_the_command_is_started(server: Forking, place: Path) -> None:
    server.server.kill()
    server.server.wait()
    with server.start([*COMMAND, "describe"], env={**os.environ, "PYTHONPATH": str(place)}) as process:
        output, _ = process.communicate("from stdin")
    assert json.loads(output)[0] is None and process.returncode == 7


def test_the_server_ends_when_nobody_can_ask(server: Forking) -> None:
    server.socket.close()
    assert server.server.wait(60) == 0


def test_a_process_without_the_socket_starts_its_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NUMBER, raising=False)
    assert inherited_socket() is None and asking(COMMAND, inherited_socket()) == COMMAND
    monkeypatch.setenv(NUMBER, "5")
    assert inherited_socket() == 5 and subprocess.list2cmdline(asking(COMMAND, inherited_socket())).endswith(
        "5 " + " ".join(COMMAND)
    )

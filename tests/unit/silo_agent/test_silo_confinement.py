"""What a process that is confined by Landlock can reach; that trainers train so as ever, the tests of `real_silo` show."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from anchorage_silo import confinement, landlock
from anchorage_silo.confinement import Grants
from anchorage_silo.files import make_trainer_folder, trainer_folder

pytestmark = pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock: a trainer is not confined")

TRY = """
import json, os, sys
found = {}
for what, arguments in json.load(sys.stdin):
    try:
        match what:
            case "read":
                with open(arguments[0], "rb") as file:
                    file.read(1)
            case "append":
                os.close(os.open(arguments[0], os.O_WRONLY | os.O_APPEND | os.O_CREAT))
            case "list":
                os.listdir(arguments[0])
            case "connect":
                import socket
                socket.create_connection(arguments, 10).close()
            case "signal":
                os.kill(*arguments)
            case _:
                getattr(os, what)(*arguments)
        found[f"{what} {arguments[0]}"] = "done"
    except OSError as error:
        found[f"{what} {arguments[0]}"] = type(error).__name__
print(json.dumps([found, dict(os.environ)]))
"""
"""A program that tries what it is told, and says what became of it."""


def tried(
    grants: Grants, attempts: list[tuple[str, list[object]]], **environment: str
) -> tuple[list[str], dict[str, str]]:
    """Carry out attempts in a confined process; return what became of each, and its environment."""
    done = subprocess.run(
        grants.command((sys.executable, "-c", TRY)),
        input=json.dumps(attempts), capture_output=True, text=True, check=True, env={**os.environ, **environment},
    )  # fmt: skip
    found, own = json.loads(done.stdout)
    return [found[f"{what} {arguments[0]}"] for what, arguments in attempts], own


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """An agent's state folder, with a token, a policy and a ledger beside it, images, and what another agent has."""
    folder = tmp_path / "state"
    for file in ("state/silo.key", "state/silo.crt", "state/audit.jsonl", "state/audit.key", "token", "policy.yaml", "ledger/privacy.jsonl",
                 "images/a.png", "other/state/silo.key"):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("secret")
    (tmp_path / "link").symlink_to(folder)
    make_trainer_folder(folder)
    return folder


def grants_of(state: Path, images: str = "images", *, network: bool = False) -> Grants:
    beside = state.parent
    hidden = (state, beside / "token", beside / "policy.yaml", beside / "ledger")
    return Grants(str(trainer_folder(state)), str(beside / images), tuple(map(str, hidden)), network)


@pytest.mark.parametrize("images", ["images", ".", "link"])
def test_what_is_the_agent_s_cannot_be_read_or_changed(state: Path, images: str) -> None:
    """Also where the images' folder is one above the agent's, or a link to it."""
    beside = state.parent
    secrets = [state / name for name in ("silo.key", "silo.crt", "audit.jsonl", "audit.key")]
    secrets += [
        beside / "token",
        beside / "policy.yaml",
        beside / "ledger" / "privacy.jsonl",
        beside / "link" / "silo.key",
    ]
    attempts = [(how, [str(path)]) for path in secrets for how in ("read", "append", "unlink")]
    moved = str(trainer_folder(state) / "key")
    moves = [(how, [str(secrets[0]), moved]) for how in ("rename", "link")]
    made = [("symlink", [str(secrets[0]), moved]), ("list", [str(state)]), ("append", [str(state / "new")])]
    found, _ = tried(grants_of(state, images), [*attempts, *moves, *made])
    assert set(found) <= {"PermissionError"} | {"OSError"}, (
        found
    )  # a link to another folder is refused as one to another device
    assert set(found[: len(attempts)]) == {"PermissionError"}
    assert all(path.read_text() == "secret" for path in secrets)


def test_what_training_needs_can_be_reached(state: Path) -> None:
    own = trainer_folder(state)
    attempts = [
        ("read", [str(state.parent / "images" / "a.png")]),
        ("append", [str(own / "update.bin")]),
        ("list", [str(own)]),
    ]
    attempts += [("mkdir", [str(own / "learner")]), ("rename", [str(own / "update.bin"), str(own / "learner" / "x")])]
    attempts += [
        ("append", ["/dev/null"]),
        ("read", ["/proc/self/status"]),
        ("read", [os.__file__]),
        ("append", ["/proc/self/comm"]),
    ]
    attempts += [("read", [json.__file__]), ("read", [confinement.__file__])]
    found, own_environment = tried(grants_of(state), attempts)
    assert set(found) == {"done"}, found
    assert own_environment["TMPDIR"] == str(own / "tmp")


def test_homes_and_other_agents_are_out_of_reach(state: Path) -> None:
    home = state.parent / "home"
    home.mkdir()
    (home / "notes").write_text("secret")
    attempts = [("read", [str(home / "notes")]), ("read", [str(state.parent / "other" / "state" / "silo.key")])]
    found, environment = tried(
        grants_of(state), attempts, HOME=str(home), OTEL_EXPORTER_OTLP_HEADERS="key=1", API_TOKEN="2", NCCL_DEBUG="WARN"
    )
    assert found == ["PermissionError"] * 2
    assert environment["NCCL_DEBUG"] == "WARN"
    assert not environment.keys() & {"OTEL_EXPORTER_OTLP_HEADERS", "API_TOKEN"}


@pytest.mark.skipif(landlock.abi() < landlock.SCOPES_ABI, reason="this kernel's Landlock knows no scopes of signals")
def test_memory_environment_and_signals_of_the_agent_are_out_of_reach(state: Path) -> None:
    attempts = [("read", [f"/proc/{os.getpid()}/{file}"]) for file in ("mem", "environ", "maps", "fd/0")]
    attempts += [("signal", [os.getpid(), 0])]
    found, _ = tried(grants_of(state), attempts)
    assert found == ["PermissionError"] * 5


@pytest.mark.skipif(landlock.abi() < landlock.NETWORK_ABI, reason="this kernel's Landlock knows no TCP")
@pytest.mark.parametrize(("network", "found"), [(False, "PermissionError"), (True, "done")])
def test_a_trainer_of_one_device_connects_to_nobody(state: Path, network: bool, found: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert tried(grants_of(state, network=network), [("connect", list(server.getsockname()))])[0] == [found]


def test_a_process_that_cannot_be_confined_does_not_start(state: Path) -> None:
    """Without its own folder there is nothing that it could do."""
    grants = replace(grants_of(state), own=str(state / "silo.key" / "own"))
    done = subprocess.run(
        grants.command((sys.executable, "-c", "print(1)")), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("the trainer could not be confined: ")

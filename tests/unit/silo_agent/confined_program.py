"""A program that tries what it is told, confined as a trainer or free."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from anchorage_silo.confinement import Grants
from anchorage_silo.files import make_trainer_folder, trainer_folder

Attempt = tuple[str, list[object]]
"""What is tried, and on what."""
TRY = """
import ctypes, json, os, socket, sys
found = []
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    result = libc.syscall(*map(ctypes.c_long, numbers))
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
for what, arguments in json.load(sys.stdin):
    first = arguments[0]
    try:
        match what:
            case "read":
                with open(first, "rb") as file:
                    file.read(1)
            case "append":
                os.close(os.open(first, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
            case "open":
                os.close(os.open(first, arguments[1]))
            case "list":
                os.listdir(first)
            case "connect":
                socket.create_connection(arguments, 10).close()
            case "socket":
                socket.socket(*arguments).close()
            case "connect by":
                kind, address = arguments
                with socket.socket(*kind) as opened:
                    opened.connect(tuple(address) if isinstance(address, list) else address)
                    opened.send(b"secret")
            case "send by":
                kind, flags, address = arguments
                with socket.socket(*kind) as opened:
                    opened.sendto(b"secret", flags, tuple(address) if isinstance(address, list) else address)
            case "send from pair":
                kind, address = arguments
                pair = socket.socketpair(socket.AF_UNIX, kind)
                pair[0].sendto(b"secret", address)
            case "connect pair":
                kind, address, closed = arguments
                pair = socket.socketpair(socket.AF_UNIX, kind)
                if closed:
                    pair[1].close()
                pair[0].connect(address)
            case "pass descriptor":
                one, other = socket.socketpair()
                socket.send_fds(one, [b"x"], [0])
                socket.recv_fds(other, 1, 1)
            case "signal":
                os.kill(*arguments)
            case "call":
                call(*arguments)
            case "call with room":
                room = ctypes.create_string_buffer(256)
                call(*[ctypes.addressof(room) if each == "room" else each for each in arguments])
            case "fork":
                if call(*arguments) == 0:
                    os._exit(0)
            case _:
                getattr(os, what)(*arguments)
        found.append("done")
    except OSError as error:
        found.append(type(error).__name__)
print(json.dumps([found, dict(os.environ)]))
"""


def tried(
    grants: Grants | None, attempts: Sequence[Attempt], cwd: Path | None = None, **environment: str
) -> tuple[list[str], dict[str, str]]:
    """Carry out attempts in a process that is confined, or with None free; return what became of each, and its environment."""
    program = (sys.executable, "-c", TRY)
    done = subprocess.run(
        grants.command(program) if grants is not None else program,
        input=json.dumps(attempts), capture_output=True, text=True, check=True, cwd=cwd, env={**os.environ, **environment},
    )  # fmt: skip
    results, own_environment = json.loads(done.stdout)
    return results, own_environment


def make_state(folder: Path) -> Path:
    """Make an agent's state folder, with a token, a policy and a ledger beside it, images, and what another agent has; return it."""
    for file in ("state/silo.key", "state/silo.crt", "state/audit.jsonl", "state/audit.key", "token", "policy.yaml", "ledger/privacy.jsonl",
                 "images/a.png", "other/state/silo.key"):  # fmt: skip
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("secret")
    (folder / "link").symlink_to(folder / "state")
    make_trainer_folder(folder / "state")
    return folder / "state"


def grants_of(state: Path, images: str = "images", *, network: bool = False) -> Grants:
    """Return what the trainer of that state folder is granted."""
    parent = state.parent
    hidden = (state, parent / "token", parent / "policy.yaml", parent / "ledger")
    return Grants(str(trainer_folder(state)), str(parent / images), tuple(map(str, hidden)), network)

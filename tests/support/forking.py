"""A fork server of a test's own."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from anchorage.api.fork_server import asking


@dataclass(frozen=True)
class Forking:
    """A fork server, and the socket by which it is asked."""

    server: "subprocess.Popen[bytes]"
    socket: socket.socket

    def start(
        self, command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start the process that stands for one which is forked for a command, in a folder and with an environment as `Popen` does."""
        number, pipe = self.socket.fileno(), subprocess.PIPE
        return subprocess.Popen(
            asking(command, number),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            pass_fds=(number,),
            cwd=cwd,
            env=env,
        )


@contextmanager
def forking(modules: Sequence[str], environment: Mapping[str, str]) -> Iterator[Forking]:
    """Start a fork server that imports modules; it is ended with the block."""
    asks, answers = socket.socketpair(type=socket.SOCK_SEQPACKET)
    number = answers.fileno()
    code = f"from anchorage.api.fork_server import serve; serve({number}, {list(modules)!r})"
    with asks, answers:
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, pass_fds=(number,), env={**os.environ, **environment}) as server:
            answers.close()
            try:
                yield Forking(server, asks)
            finally:
                server.kill()

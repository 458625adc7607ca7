"""MLflow behind a link of its own, and what it must have of a run when that is over."""

import os
import signal
import socket
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

from chaos_link import Link
from federation_processes import Process

SERVER = Path(__file__).with_name("chaos_mlflow.py")
SLOW = 1 << 12
"""Bytes per second, each way, of a slow MLflow."""
EVERY_ROUND = "silos_counted"
"""A metric of every round."""


class Tracking:
    """An MLflow tracking server of one run, with a database that can be looked at."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self._port = free.getsockname()[1]
        self._link = Link(f"127.0.0.1:{self._port}")
        self.uri = f"http://{self._link.address}"
        self.start()

    def start(self) -> None:
        """Start the server."""
        self._server = Process([str(SERVER), str(self._folder), str(self._port)], os.environ)

    def down(self) -> None:
        """Kill it, until it is started again."""
        self._server.kill()

    def pause(self) -> None:
        """Have it take connections and answer nothing."""
        self._server.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Have it answer again."""
        self._server.signal(signal.SIGCONT)

    def slow(self) -> None:
        """Have everything to and from it take long."""
        self._link.slow(SLOW)

    def mend(self) -> None:
        """Have the way to it be fast."""
        self._link.mend()

    def close(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            self.go_on()
        self.down()
        self._link.close()

    def rounds(self) -> Counter[int]:
        """Return how often it has each round."""
        steps = self._ask(f"SELECT step FROM metrics WHERE key = '{EVERY_ROUND}'")
        return Counter(step for (step,) in steps)

    def runs(self) -> list[str]:
        """Return the states of the runs that it has."""
        return [status for (status,) in self._ask("SELECT status FROM runs")]

    def _ask(self, query: str) -> list[tuple[object, ...]]:
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(self._folder / "mlflow.db", timeout=5)) as data,
        ):
            return data.execute(query).fetchall()
        return []

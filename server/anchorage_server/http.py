"""The status endpoint: a small HTTP server that only answers GET."""

import json
import logging
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import BoundedSemaphore, Thread
from typing import Any

from anchorage.errors import AnchorageError
from anchorage.errors.transfer import CANNOT_LISTEN
from anchorage_server.status import StatusBoard

CONNECTIONS = 16
"""Requests that are answered at the same time; more are turned away."""
TIMEOUT_SECONDS = 5.0
"""How long a client may take over its request, and over taking the answer."""
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

_log = logging.getLogger(__name__)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request and closes the connection."""

    server: "StatusServer"
    timeout = TIMEOUT_SECONDS
    server_version = "anchorage"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        answer = self.server.answers.get(self.path.partition("?")[0])
        status, kind, body = answer() if answer else (404, TEXT, b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: probes come every few seconds."""


class StatusServer(ThreadingHTTPServer):
    """Serves ``/status``, ``/rounds``, ``/healthz``, ``/readyz`` and ``/metrics``.

    Parameters
    ----------
    listen : str
        Host and port; port 0 takes any free one.
    board : StatusBoard
        What to tell.
    alive : callable
        Whether the engine's thread runs.

    Raises
    ------
    AnchorageError
        The address cannot be listened on.
    """

    daemon_threads = True
    request_queue_size = 2 * CONNECTIONS

    def __init__(self, listen: str, board: StatusBoard, alive: Callable[[], bool]) -> None:
        host, _, port = listen.rpartition(":")
        self._board = board
        self._alive = alive
        self._room = BoundedSemaphore(CONNECTIONS)
        self.answers = {
            "/status": self._status,
            "/rounds": self._rounds,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
        }
        try:
            super().__init__((host, int(port)), _Handler)
        except OSError as error:
            raise AnchorageError(
                CANNOT_LISTEN, f"cannot serve the status on {listen}: {error.strerror or error}"
            ) from error
        self._thread = Thread(target=self.serve_forever, args=(0.1,), name="status", daemon=True)

    @property
    def address(self) -> str:
        """Host and port that the server listens on."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"

    def start(self) -> None:
        """Answer requests from now on, in threads of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def server_bind(self) -> None:
        """Bind without asking the name service for this machine's name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread, or turn the client away where too many are there."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong here, not that a client went away."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("cannot answer a request for the status")

    def _status(self) -> tuple[int, str, bytes]:
        return 200, JSON, self._board.snapshot().model_dump_json(by_alias=True).encode()

    def _rounds(self) -> tuple[int, str, bytes]:
        return 200, JSON, json.dumps(self._board.rounds()).encode()

    def _healthz(self) -> tuple[int, str, bytes]:
        wrong = self._board.stuck() or ("" if self._alive() else "the engine's thread has ended")
        return (503, TEXT, f"{wrong}\n".encode()) if wrong else (200, TEXT, b"ok\n")

    def _readyz(self) -> tuple[int, str, bytes]:
        ready = next(c for c in self._board.snapshot().conditions if c.type == "Ready")
        return (200 if ready.status == "True" else 503), TEXT, f"{ready.reason} {ready.message}\n".encode()

    def _metrics(self) -> tuple[int, str, bytes]:
        from anchorage_server.metrics import exposition  # most runs are never asked

        return 200, "text/plain; version=0.0.4; charset=utf-8", exposition(self._board)

"""Probes and metrics: a small HTTP server that only answers GET, for the process's own cluster."""

import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Lock, Thread
from typing import Any

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.transfer import CANNOT_LISTEN
from anchorage.transport.addresses import party_of

CONNECTIONS = 16
"""Connections at the same time; a further one ends that which has waited longest of the address that has most, so that slow callers keep no
probe out."""
TIMEOUT_SECONDS = 5.0
"""Time that a client has to send its request and to read the answer."""
EVERY_ADDRESS = "[::]"
"""Host that stands for every address of a machine, of IPv6 and of IPv4."""
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"

Answer = tuple[int, str, bytes]
"""Status, content type, body."""

_log = logging.getLogger(__name__)


def verdict(good: bool, line: str) -> Answer:
    """Return a probe's answer, 200 or 503, with one line for people."""
    return (200 if good else 503), TEXT, f"{line}\n".encode()


def _has_ipv6() -> bool:
    """Return whether the kernel has IPv6; it may be switched off."""
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return False
    return True


class _Handler(BaseHTTPRequestHandler):
    """Answers one request and closes the connection."""

    server: "ProbeServer"
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
        """Log nothing: probes come every few seconds."""


class ProbeServer(ThreadingHTTPServer):
    """Serves probes and metrics of a process without encryption.

    Parameters
    ----------
    listen : str
        Host and port, an IPv6 address in brackets; port 0 takes any free one. ``[::]`` is every address of the machine, of IPv4 too.
    answers : mapping from str to callable
        Function that answers, by path.

    Raises
    ------
    AnchorageError
        The address cannot be listened on.
    """

    daemon_threads = True
    request_queue_size = 2 * CONNECTIONS
    handler: type[BaseHTTPRequestHandler] = _Handler
    """Answers the requests of one connection."""

    def __init__(self, listen: str, answers: Mapping[str, Callable[[], Answer]]) -> None:
        self.answers = answers
        self._open: dict[int, tuple[str, socket.socket]] = {}  # by descriptor, the oldest first, with whose it is
        self._lock = Lock()
        host, _, port = listen.rpartition(":")
        if host == EVERY_ADDRESS and not _has_ipv6():
            host = "0.0.0.0"
        self.address_family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        try:
            super().__init__((host.strip("[]"), int(port)), self.handler)
        except (OSError, OverflowError) as error:
            detail = f"cannot serve probes on {listen}: {getattr(error, 'strerror', None) or error}"
            raise AnchorageError(CANNOT_LISTEN, detail) from error
        self._thread = Thread(target=self.serve_forever, args=(0.1,), name="probes", daemon=True)

    @property
    def address(self) -> str:
        """Host and port that the server listens on."""
        host, port = self.server_address[:2]
        return f"[{host!s}]:{port}" if self.address_family == socket.AF_INET6 else f"{host!s}:{port}"

    def start(self) -> None:
        """Answer requests from now on, in threads of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def server_bind(self) -> None:
        """Bind, to IPv6 and IPv4 alike where every address is meant, without asking for this machine's name, which can take seconds."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread; where there are too many, the oldest connection of the address with the most ends."""
        with self._lock:
            if len(self._open) >= CONNECTIONS:
                most, _ = Counter(party for party, _ in self._open.values()).most_common(1)[0]
                oldest = next(descriptor for descriptor, (party, _) in self._open.items() if party == most)
                with suppress(OSError):
                    self._open.pop(oldest)[1].shutdown(socket.SHUT_RDWR)
            self._open[request.fileno()] = party_of(client_address[0]), request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and release its slot."""
        with self._lock:
            self._open.pop(request.fileno(), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors of the server, not disconnected clients."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("cannot answer a probe")

"""The control endpoint: what a cluster's operator asks and says, over HTTPS with certificates on both sides."""

import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import Any, TypeVar

from cryptography.x509 import load_der_x509_certificate
from pydantic import ValidationError

from anchorage.api.errors import AnchorageError
from anchorage.api.regular_files import read_regular
from anchorage.transport.pki import Credentials, operator_uri, uris_of
from anchorage.transport.probes import Answer, ProbeServer
from anchorage_server.http import JSON

HANDSHAKE_SECONDS = 5.0
IDLE_SECONDS = 60.0
"""How long a connection may be silent."""
LONGEST_SECONDS = 600.0
"""After so long a connection is closed behind an answer, so that certificates are looked at again."""
MOST_BODY_BYTES = 4 << 20

_log = logging.getLogger(__name__)

T = TypeVar("T")

Ask = Callable[[], Answer]
Put = Callable[[bytes], Answer]


def json_answer(values: Any, status: int = 200) -> Answer:
    """Return an answer of JSON values."""
    return status, JSON, json.dumps(values).encode()


def refusal(status: int, message: str, code: str = "") -> Answer:
    """Return an answer that says what is wrong."""
    return json_answer({"code": code, "message": message}, status)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and PUT, one request after another on a connection."""

    server: "ControlServer"
    connection: ssl.SSLSocket
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server_version = "anchorage"
    sys_version = ""

    def setup(self) -> None:
        """Look at who is there."""
        super().setup()
        self._opened = time.monotonic()
        self._operator = self.server.is_operator(self.connection)

    def do_GET(self) -> None:
        """Answer."""
        self._say(self._answer(self.server.asks, self.server.puts, lambda ask: ask()))

    def do_PUT(self) -> None:
        """Take a body and answer."""
        body = self._body()
        if isinstance(body, bytes):
            self._say(self._answer(self.server.puts, self.server.asks, lambda put: put(body)))
        else:
            self.close_connection = True  # the body was not read
            self._say(body)

    def _answer(self, known: Mapping[str, T], others: Mapping[str, Any], call: Callable[[T], Answer]) -> Answer:
        path = self.path.partition("?")[0]
        if not self._operator:
            return refusal(403, "only the federation's operator may ask here")
        if path not in known:
            return refusal(405, f"not by {self.command}") if path in others else refusal(404, "not found")
        try:
            return call(known[path])
        except ValidationError as error:
            return refusal(400, "; ".join(f"{_place(e['loc'])}: {e['msg']}" for e in error.errors()[:8]))
        except AnchorageError as error:
            return refusal(500, error.message, error.code)

    def _body(self) -> bytes | Answer:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or "Transfer-Encoding" in self.headers:
            return refusal(411, "say the body's length in Content-Length")
        if int(length) > MOST_BODY_BYTES:
            return refusal(413, f"the body has {length} bytes, the most are {MOST_BODY_BYTES}")
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else refusal(400, "the body is shorter than was said")

    def _say(self, answer: Answer) -> None:
        status, kind, body = answer
        self.close_connection |= time.monotonic() - self._opened > LONGEST_SECONDS
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the operator asks every few seconds."""


class ControlServer(ProbeServer):
    """Serves the operator, and nobody else: TLS 1.3, a certificate of the authority that names the federation's operator.

    Parameters
    ----------
    listen : str
        Host and port; port 0 takes any free one.
    credentials : Credentials
        The server's TLS files; read again for a new connection when they have changed.
    federation : str
        The federation's name.
    asks : mapping of str to callable
        What answers GET, by path.
    puts : mapping of str to callable
        What takes the body of a PUT and answers, by path. A `pydantic.ValidationError` becomes 400, an AnchorageError 500.

    Raises
    ------
    AnchorageError
        The address cannot be listened on.
    OSError
        The TLS files cannot be read, or do not belong together.
    """

    handler = _Handler

    def __init__(
        self,
        listen: str,
        credentials: Credentials,
        federation: str,
        asks: Mapping[str, Ask],
        puts: Mapping[str, Put],
    ) -> None:
        self.asks = asks
        self.puts = puts
        self._uri = operator_uri(federation)
        self._credentials = credentials
        self._renewing = Lock()
        self._files = _contents(credentials)
        self._context = _context(credentials)
        super().__init__(listen, asks)

    def is_operator(self, connection: ssl.SSLSocket) -> bool:
        """Return whether the peer's certificate, which the authority signed, names the operator."""
        shown = connection.getpeercert(binary_form=True)
        return shown is not None and uris_of(load_der_x509_certificate(shown)) == [self._uri]

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the connection's own thread, then answer."""
        request.settimeout(HANDSHAKE_SECONDS)
        with self._current().wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def _current(self) -> ssl.SSLContext:
        """Return a context of the TLS files as they are now; of the last ones that belonged together where these do not."""
        with self._renewing:
            try:
                contents = _contents(self._credentials)
                if contents != self._files:
                    self._context, self._files = _context(self._credentials), contents
            except OSError as error:
                _log.warning("the TLS files cannot be used; the ones before are kept", extra={"error": str(error)})
            return self._context


def _contents(credentials: Credentials) -> tuple[bytes, ...]:
    return tuple(read_regular(path) for path in (credentials.key, credentials.certificate, credentials.authority))


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(credentials.certificate, credentials.key)
    context.load_verify_locations(credentials.authority)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the authority need not have certified itself
    return context


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "body"

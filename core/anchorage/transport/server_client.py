"""How a federation's server is: its control endpoint over mutual TLS, or a local run's plain status endpoint, on a kept connection."""

import hashlib
import http.client
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.status import FederationStatus, seconds_of
from anchorage.transport.pki import key_fingerprint

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 5.0
LARGEST_ANSWER = 8 * 2**20

T = TypeVar("T")


class ServerError(AnchorageError):
    """The server did not answer, or not as it should."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(commands.STATUS_UNREACHABLE, message)
        self.reason = reason
        """One CamelCase word, such as ``ConnectionRefused``."""


@dataclass(frozen=True, slots=True)
class Member:
    """One silo that the server admits."""

    name: str
    labels: str
    """Which of its images are labelled: None, All or Partial."""
    key: str
    """SHA-256 of its certificate's public key (SubjectPublicKeyInfo, DER), hexadecimal; empty for any."""
    next_key: str = ""
    """The same of the key that takes its place as soon as the silo shows it; empty for none."""


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A signing request that waits at the server."""

    id: str
    """The server's name for it."""
    kind: Literal["Enrol", "Renew"]
    """``Enrol``: with a token. ``Renew``: over a connection whose certificate showed the silo."""
    silo: str
    """Who asks; for ``Enrol`` only claimed, for ``Renew`` proved."""
    token_hash: str
    """SHA-256 of the token, hexadecimal; empty for ``Renew``."""
    key: str
    """SHA-256 of the requested public key (SubjectPublicKeyInfo, DER), hexadecimal; empty where the request cannot be read."""
    csr: str = field(repr=False)
    """The request, PEM."""
    time: float
    """When the server received it, seconds since the epoch."""


class _Connection(http.client.HTTPConnection):
    """Connects to an address and expects the certificate of a name: names are not resolved every few seconds."""

    def __init__(self, address: str, port: int, name: str, context: ssl.SSLContext | None) -> None:
        super().__init__(address, port, timeout=CONNECT_SECONDS)
        self._name = name
        self._tls = context

    def connect(self) -> None:
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)
        self.sock.settimeout(ANSWER_SECONDS)


class ServerClient:
    """Asks one federation's server, without a proxy; may be used by several threads, one after the other.

    Parameters
    ----------
    address : str
        IP address or name to connect to.
    port : int
        Port of the control endpoint.
    name : str
        DNS name in the server's certificate.
    context : ssl.SSLContext or None
        What to show and whom to trust; None for plain HTTP, as on the machine of a local run.
    """

    def __init__(self, address: str, port: int, name: str = "", context: ssl.SSLContext | None = None) -> None:
        self.address = address
        self.context = context
        self._name = name or f"{address}:{port}"
        self._connection = _Connection(address, port, name, context)
        self._lock = Lock()

    def status(self) -> FederationStatus:
        """Return the server's own status.

        Raises
        ------
        ServerError
            It did not answer as it should.
        """
        try:
            return FederationStatus.model_validate_json(self._ask("GET", "/status"))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ServerError("MalformedAnswer", f"{self._name}/status: {where}: {first['msg']}") from error

    def members(self) -> tuple[Member, ...]:
        """Return the members that the server has, in its order. Raises as `status`."""
        return self._get("/members", "members", _member)

    def requests(self) -> tuple[CertificateRequest, ...]:
        """Return the signing requests that wait at the server, their tokens hashed. Raises as `status`."""
        return self._get("/requests", "requests", _request)

    def put_members(self, members: Sequence[Member], generation: int) -> None:
        """Give the server its list of members. Raises as `status`."""
        listed = [
            {"name": m.name, "labels": m.labels, **({"key": m.key} if m.key else {}), **_next_key(m)} for m in members
        ]
        self._ask("PUT", "/members", {"members": listed, "generation": generation})

    def put_answers(self, answers: Sequence[Mapping[str, str]]) -> None:
        """Answer signing requests: each with ``id`` and either ``certificate`` or ``code`` and ``message``. Raises as `status`."""
        self._ask("PUT", "/answers", {"answers": list(answers)})

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _get(self, path: str, field: str, read: Callable[[dict[str, Any]], T]) -> tuple[T, ...]:
        answer = self._ask("GET", path)
        try:
            return tuple(map(read, json.loads(answer)[field]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ServerError("MalformedAnswer", f"{self._name}{path}: {type(error).__name__}") from error

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Return the answer's body; a kept connection that the server has closed meanwhile is opened again once."""
        with self._lock:
            was_connected = self._connection.sock is not None
            try:
                return self._exchange(method, path, body)
            except (ConnectionError, http.client.HTTPException, ssl.SSLEOFError) as error:
                self._connection.close()
                if not was_connected:
                    raise _server_error(error, f"{self._name}{path}") from error
            except OSError as error:
                self._connection.close()
                raise _server_error(error, f"{self._name}{path}") from error
            try:
                return self._exchange(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                raise _server_error(error, f"{self._name}{path}") from error

    def _exchange(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        headers = {} if body is None else {"Content-Type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        response = self._connection.getresponse()
        content = response.read(LARGEST_ANSWER + 1)
        if not 200 <= response.status < 300:
            self._connection.close()
            raise ServerError(f"Status{response.status}", f"{method} {self._name}{path}: {response.reason}")
        if len(content) > LARGEST_ANSWER:
            self._connection.close()
            raise ServerError("AnswerTooLarge", f"{self._name}{path}: more than {LARGEST_ANSWER} bytes")
        return content


def _member(item: Mapping[str, Any]) -> Member:
    return Member(str(item["name"]), str(item["labels"]), str(item.get("key") or ""), str(item.get("nextKey") or ""))


def _next_key(member: Member) -> dict[str, str]:
    return {"nextKey": member.next_key} if member.next_key else {}


def _request(item: Mapping[str, Any]) -> CertificateRequest:
    token, csr = str(item.get("token") or ""), str(item.get("csr") or "")
    try:
        key = key_fingerprint(csr.encode())
    except AnchorageError:
        key = ""
    return CertificateRequest(
        id=str(item.get("id", "")),
        kind="Renew" if item.get("kind") == "Renew" else "Enrol",
        silo=str(item.get("silo", "")),
        token_hash=hashlib.sha256(token.encode()).hexdigest() if token else "",
        key=key,
        csr=csr,
        time=_seconds(str(item.get("time", ""))),
    )


def _seconds(moment: str) -> float:
    """Read a moment; the epoch where it is none."""
    try:
        return seconds_of(moment)
    except ValueError:
        return 0.0


def _server_error(error: Exception, where: str) -> ServerError:
    match error:
        case TimeoutError():
            reason = "Timeout"
        case ConnectionRefusedError():
            reason = "ConnectionRefused"
        case ssl.SSLCertVerificationError():
            reason = "CertificateNotTrusted"
        case ssl.SSLError():
            reason = "TlsFailed"
        case OSError() if error.errno and not isinstance(error, ConnectionError):
            reason = "Unreachable"
        case _:
            reason = "ConnectionLost"
    return ServerError(reason, f"{where}: {str(error) or type(error).__name__}".splitlines()[0][:500])

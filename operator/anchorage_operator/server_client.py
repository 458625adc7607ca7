"""A federation's server as the operator sees it: its control endpoint, over mutual TLS, on a kept connection."""

import hashlib
import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from pydantic import ValidationError

from anchorage.api.errors import AnchorageError
from anchorage.api.status import FederationStatus
from anchorage.transport.pki import key_fingerprint
from anchorage_operator.moments import seconds_of
from anchorage_operator.observed import Member, Request

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 5.0
LARGEST_ANSWER = 8 * 2**20


class ServerError(Exception):
    """The control endpoint did not answer, or not as it should.

    Parameters
    ----------
    reason : str
        One CamelCase word, such as ``ConnectionRefused``.
    message : str
        One line for people.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class _Connection(http.client.HTTPSConnection):
    """Connects to `address` and expects the certificate of `name`: no look-up of names every few seconds."""

    def __init__(self, address: str, port: int, name: str, context: ssl.SSLContext) -> None:
        super().__init__(address, port, timeout=CONNECT_SECONDS, context=context)
        self._name = name
        self._tls = context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)
        self.sock.settimeout(ANSWER_SECONDS)


class ServerClient:
    """Asks one federation's server; may be used by several threads, one after the other.

    Parameters
    ----------
    address : str
        IP address or name to connect to.
    port : int
        Port of the control endpoint.
    name : str
        DNS name in the server's certificate.
    context : ssl.SSLContext
        What to show and whom to trust.
    """

    def __init__(self, address: str, port: int, name: str, context: ssl.SSLContext) -> None:
        self.address = address
        self.context = context
        self._name = name
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
        found = self._get("/members", "members")
        return tuple(Member(item["name"], item["labels"], item.get("key") or "") for item in found)

    def requests(self) -> tuple[Request, ...]:
        """Return the signing requests that wait at the server, their tokens hashed. Raises as `status`."""
        return tuple(map(_request, self._get("/requests", "requests")))

    def put_members(self, members: Sequence[Member], generation: int) -> None:
        """Give the server its list of members. Raises as `status`."""
        listed = [{"name": m.name, "labels": m.labels, **({"key": m.key} if m.key else {})} for m in members]
        self._ask("PUT", "/members", {"members": listed, "generation": generation})

    def put_answers(self, answers: Sequence[Mapping[str, str]]) -> None:
        """Answer signing requests: each with ``id`` and either ``certificate`` or ``code`` and ``message``. Raises as `status`."""
        self._ask("PUT", "/answers", {"answers": list(answers)})

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _get(self, path: str, field: str) -> list[dict[str, Any]]:
        try:
            found = json.loads(self._ask("GET", path))[field]
        except (ValueError, LookupError, TypeError) as error:
            raise ServerError("MalformedAnswer", f"{self._name}{path}: {type(error).__name__}") from error
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise ServerError("MalformedAnswer", f"{self._name}{path}: {field} is no list of objects")
        return found

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Return the answer's body; a kept connection that the server has closed meanwhile is opened again once."""
        with self._lock:
            kept = self._connection.sock is not None
            try:
                return self._exchange(method, path, body)
            except (ConnectionError, http.client.HTTPException, ssl.SSLEOFError) as error:
                self._connection.close()
                if not kept:
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


def _request(item: Mapping[str, Any]) -> Request:
    token, csr = str(item.get("token") or ""), str(item.get("csr") or "")
    try:
        key = key_fingerprint(csr.encode())
    except AnchorageError:
        key = ""
    return Request(
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

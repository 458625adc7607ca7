"""Commands in pods, over the API's exec protocol (``v4.channel.k8s.io``)."""

import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from anchorage.transport.kube.access import ClusterAccess
from anchorage.transport.kube.resources import json_object

CONNECT_SECONDS = 10.0
"""How long each address of the API server's name has to accept a connection."""
STREAM_SECONDS = 120.0
"""How long a stream whose other end works may be silent."""

_PROTOCOL = "v4.channel.k8s.io"
_STDOUT, _STDERR, _ERROR = 1, 2, 3
"""Channels of the protocol."""
_MOST_STDERR = 65_536


class CommandError(Exception):
    """A command in a pod ended with a status other than 0."""

    def __init__(self, exit_code: int, stderr: str, status: int = 0) -> None:
        super().__init__(f"exit status {exit_code}: {stderr}")
        self.exit_code = exit_code
        """Its exit status; -1 where it could not be started."""
        self.stderr = stderr
        """What it wrote to standard error, or the API server's message where it could not be started."""
        self.status = status
        """HTTP status with which the API server refused to start it; else 0."""


def command_output(access: ClusterAccess, url: str, headers: Mapping[str, str]) -> Iterator[bytes]:
    """Run a command in a pod and yield what it writes to standard output.

    Parameters
    ----------
    access : ClusterAccess
        The API server.
    url : str
        The pod's ``exec`` subresource with the command as its query, over HTTP or HTTPS.
    headers : mapping of str to str
        The credentials.

    Raises
    ------
    CommandError
        It ended with another status than 0, or could not be started.
    OSError
        The API server cannot be reached, or the stream breaks.
    """
    from websocket import WebSocketException

    try:
        yield from _output(access, url, headers)
    except WebSocketException as error:
        raise ConnectionError(str(error)) from error


def _output(access: ClusterAccess, url: str, headers: Mapping[str, str]) -> Iterator[bytes]:
    from websocket import ABNF, WebSocketBadStatusException, create_connection

    try:
        stream: Any = create_connection(
            url.replace("http", "ws", 1),
            CONNECT_SECONDS,
            header=[f"{name}: {value}" for name, value in headers.items()],
            subprotocols=[_PROTOCOL],
            **_route(access),
        )
    except WebSocketBadStatusException as error:
        refusal = json_object(error.resp_body or b"")
        message = refusal.get("message") or f"HTTP status {error.status_code}"
        raise CommandError(-1, message, error.status_code) from error
    messages = {_STDERR: b"", _ERROR: b""}
    try:
        stream.settimeout(STREAM_SECONDS)
        while True:
            operation, frame = stream.recv_data_frame(True)
            if operation == ABNF.OPCODE_CLOSE:
                break
            if operation not in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) or not frame.data:
                continue
            channel, data = frame.data[0], bytes(frame.data[1:])
            if channel == _STDOUT and data:
                yield data
            elif channel in messages:
                messages[channel] = (messages[channel] + data)[-_MOST_STDERR:]
    finally:
        stream.shutdown()
    _require_success(messages[_ERROR], messages[_STDERR].decode(errors="replace"))


def _route(access: ClusterAccess) -> dict[str, Any]:
    """Return the options of a WebSocket for the connection: an open one, or TLS and the proxy."""
    if not access.proxy:
        return {"socket": _connect(access)}
    options: dict[str, Any] = {}
    if tls := access.tls():
        options["sslopt"] = {"context": tls, "server_hostname": access.server_name}
    proxy = urlsplit(access.proxy)
    options["proxy_type"] = proxy.scheme if proxy.scheme.startswith("socks") else "http"
    options |= {"http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port or 80}
    if proxy.username:
        options["http_proxy_auth"] = unquote(proxy.username), unquote(proxy.password or "")
    return options


def _connect(access: ClusterAccess) -> socket.socket:
    """Connect to the first address of the API server's name that accepts: the library gives up at the first that does not answer."""
    place, tls = urlsplit(access.server), access.tls()
    connected = socket.create_connection((place.hostname, place.port or (443 if tls else 80)), CONNECT_SECONDS)
    if tls is None:
        return connected
    try:
        return tls.wrap_socket(connected, server_hostname=access.server_name or place.hostname)
    except OSError:
        connected.close()
        raise


def _require_success(verdict: bytes, stderr: str) -> None:
    status = json_object(verdict)
    if not status:
        raise ConnectionError("the stream from the pod broke off; run the command again")
    if status.get("status") == "Success":
        return
    causes = status.get("details", {}).get("causes", [])
    codes = [cause.get("message") for cause in causes if cause.get("reason") == "ExitCode"]
    raise CommandError(int(codes[0]) if codes else -1, stderr if codes else status.get("message", ""))

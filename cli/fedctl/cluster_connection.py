"""The way to a cluster's API server, as the kubeconfig says it. The only module that knows the Kubernetes library."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from anchorage.api.errors import AnchorageError, cluster

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
STREAM_SECONDS = 120.0
"""How long a stream whose other end works may be silent."""

DEFAULT_KUBECONFIG = "~/.kube/config"

_STDOUT, _STDERR, _ERROR = 1, 2, 3
"""Channels of the API's exec protocol (``v4.channel.k8s.io``)."""

_MOST_STDERR = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said.

    Parameters
    ----------
    status : int
        The HTTP status.
    headers : mapping of str to str
        Names in lower case.
    body : bytes
        Mostly JSON.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty one where it is none."""
        try:
            values = json.loads(self.body)
        except ValueError:
            return {}
        return values if isinstance(values, dict) else {}


class CommandError(Exception):
    """A command in a pod ended with a status other than 0.

    Parameters
    ----------
    exit_code : int
        Its exit status; -1 where it could not be started.
    stderr : str
        What it wrote to standard error, or the API server's message where it could not be started.
    """

    def __init__(self, exit_code: int, stderr: str) -> None:
        super().__init__(f"exit status {exit_code}: {stderr}")
        self.exit_code = exit_code
        self.stderr = stderr


class ClusterConnection:
    """Requests to one API server, as one user, with one default namespace.

    Parameters
    ----------
    context : str
        Name of the kubeconfig's context.
    namespace : str
        Namespace that the user means.
    configuration : kubernetes.client.Configuration
        Address and credentials.
    """

    def __init__(self, context: str, namespace: str, configuration: Any) -> None:
        from kubernetes.client.rest import RESTClientObject

        self.context = context
        self.namespace = namespace
        self.server: str = configuration.host
        self._configuration = configuration
        self._pool = RESTClientObject(configuration).pool_manager

    @classmethod
    def open(cls, context: str | None, namespace: str | None) -> "ClusterConnection":
        """Read the kubeconfig.

        Parameters
        ----------
        context : str or None
            None takes the current one.
        namespace : str or None
            None takes the context's, or ``default``.

        Raises
        ------
        AnchorageError
            The Kubernetes client is not installed, there is no usable kubeconfig, or the context is unknown.
        """
        try:
            from kubernetes import client
            from kubernetes import config as library
        except ImportError as error:
            raise AnchorageError(
                cluster.KUBERNETES_CLIENT_MISSING,
                f"{error.name or 'kubernetes'} cannot be imported; pip install 'anchorage[kubernetes]'",
            ) from error
        file = os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
        config: Any = library
        try:
            contexts, current = config.list_kube_config_contexts(file)
            known = {item["name"]: item["context"] for item in contexts}
            name = context or current["name"]
            if name not in known:
                found = ", ".join(sorted(known)) or "none"
                raise AnchorageError(cluster.CONTEXT_UNKNOWN, f"{file} has no context {name!r}; there are: {found}")
            configuration = client.Configuration()
            config.load_kube_config(file, context=name, client_configuration=configuration)
        except (library.ConfigException, yaml.YAMLError, OSError, TypeError, KeyError, ValueError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise AnchorageError(cluster.KUBECONFIG_UNUSABLE, f"kubeconfig {file}: {why}") from error
        return cls(name, namespace or known[name].get("namespace") or "default", configuration)

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Answer:
        """Ask the API server once.

        Raises
        ------
        AnchorageError
            It cannot be reached.
        """
        headers = {"accept": "application/json", "content-type": content_type}
        with self._reaching():
            response = self._pool.request(
                method,
                self._url(path, query),
                headers={**headers, **self._authorization()},
                body=None if body is None else json.dumps(body),
                timeout=_timeout(READ_SECONDS),
                retries=False,
            )
        return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, response.data)

    def lines(self, path: str, query: Mapping[str, str], *, follow: bool) -> Iterator[str] | Answer:
        """Ask for text and yield its lines as they come; a refusal is returned as an answer.

        Raises
        ------
        AnchorageError
            The server cannot be reached, or the stream breaks.
        """
        with self._reaching():
            response = self._pool.request(
                "GET",
                self._url(path, query),
                headers=self._authorization(),
                timeout=_timeout(None if follow else READ_SECONDS),
                retries=False,
                preload_content=False,
            )
            if response.status != 200:
                return Answer(response.status, {}, response.data)
        return self._lines(response)

    def _lines(self, response: Any) -> Iterator[str]:
        rest = b""
        try:
            with self._reaching():
                for piece in response.stream(65_536, decode_content=True):
                    *whole, rest = (rest + piece).split(b"\n")
                    for line in whole:
                        yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")
        finally:
            response.close()

    def execute(self, path: str, command: Sequence[str]) -> Iterator[bytes]:
        """Run a command in a pod and yield what it writes to standard output.

        Parameters
        ----------
        path : str
            The pod's ``exec`` subresource.
        command : sequence of str
            The command and its arguments.

        Raises
        ------
        CommandError
            It ended with another status than 0, or could not be started.
        AnchorageError
            The server cannot be reached, or the stream breaks.
        """
        from kubernetes.stream import ws_client
        from websocket import ABNF, WebSocketBadStatusException, setdefaulttimeout

        query = [*(("command", word) for word in command), ("stdout", "true"), ("stderr", "true")]
        url = f"{self.server}{path}?{urlencode(query)}".replace("http", "ws", 1)
        try:
            with self._reaching():
                setdefaulttimeout(READ_SECONDS)
                connect: Any = ws_client.create_websocket
                socket = connect(self._configuration, url, self._authorization())
        except WebSocketBadStatusException as error:
            refusal = Answer(error.status_code, {}, error.resp_body or b"").document()
            raise CommandError(-1, refusal.get("message") or f"HTTP status {error.status_code}") from error
        kept = {_STDERR: b"", _ERROR: b""}
        try:
            socket.settimeout(STREAM_SECONDS)
            while True:
                with self._reaching():
                    operation, frame = socket.recv_data_frame(True)
                if operation == ABNF.OPCODE_CLOSE:
                    break
                if operation not in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) or not frame.data:
                    continue
                channel, data = frame.data[0], bytes(frame.data[1:])
                if channel == _STDOUT and data:
                    yield data
                elif channel in kept:
                    kept[channel] = (kept[channel] + data)[-_MOST_STDERR:]
        finally:
            socket.shutdown()
        self._judge(kept[_ERROR], kept[_STDERR].decode(errors="replace"))

    def _judge(self, verdict: bytes, stderr: str) -> None:
        status = Answer(0, {}, verdict).document()
        if not status:
            raise AnchorageError(
                cluster.CLUSTER_UNREACHABLE, f"{self.server} broke the stream from the pod off; run the command again"
            )
        if status.get("status") == "Success":
            return
        causes = status.get("details", {}).get("causes", [])
        codes = [cause.get("message") for cause in causes if cause.get("reason") == "ExitCode"]
        raise CommandError(int(codes[0]) if codes else -1, stderr if codes else status.get("message", ""))

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")

    def _authorization(self) -> dict[str, str]:
        value = self._configuration.auth_settings().get("BearerToken", {}).get("value")
        return {"authorization": value} if value else {}

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Say in the catalogue's terms that the server cannot be reached, or that a stream broke."""
        from urllib3.exceptions import HTTPError
        from websocket import WebSocketBadStatusException, WebSocketException

        try:
            yield
        except WebSocketBadStatusException:
            raise
        except (HTTPError, WebSocketException, OSError) as error:
            host = urlsplit(self.server).netloc
            raise AnchorageError(
                cluster.CLUSTER_UNREACHABLE, f"{host} (context {self.context!r}): {_why(error)}"
            ) from error


def _timeout(read: float | None) -> Any:
    from urllib3 import Timeout

    return Timeout(connect=CONNECT_SECONDS, read=read)


def _why(error: BaseException) -> str:
    """Return the innermost cause in one line, without the addresses of objects."""
    while (cause := error.__cause__ or error.__context__) is not None and isinstance(cause, Exception):
        error = cause
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__

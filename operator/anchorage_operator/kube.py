"""The Kubernetes API in the few verbs that the operator needs. The only module that knows the Kubernetes client."""

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.cluster import KUBECONFIG_UNUSABLE
from anchorage_operator.names import FIELD_MANAGER
from anchorage_operator.observed import CHILD_KINDS, Json

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0
"""Limits of every request; the API server itself gives up after a minute."""
PAGE = 100
"""Objects of one answer to a list: what is parsed at once stays with the process as memory."""

_PLURALS = {"NetworkPolicy": "networkpolicies"}
API_VERSIONS: Mapping[str, str] = {
    **CHILD_KINDS,
    "Federation": "anchorage.dev/v1alpha1",
    "Silo": "anchorage.dev/v1alpha1",
    "Secret": "v1",
    "Pod": "v1",
    "PersistentVolumeClaim": "v1",
    "Event": "v1",
}
"""Every kind that the operator touches, with its apiVersion."""


class ApiError(Exception):
    """The API server refused a request, or did not answer.

    Parameters
    ----------
    status : int
        HTTP status; 0 where there was no answer.
    reason : str
        One CamelCase word, such as ``Conflict``.
    message : str
        One line for people.
    retry_after : float
        Seconds that the API server asks to wait.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status or 'no answer'} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class KubeApi(Protocol):
    """What the operator asks of the API server; every verb may raise `ApiError`, and may be called from any thread."""

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object, or None where there is none."""
        ...

    def list(self, kind: str, namespace: str | None, labels: str) -> Iterator[Json]:
        """Yield the objects with these labels, of one namespace or (None) of all."""
        ...

    def list_metadata(self, kind: str, namespace: str | None, labels: str) -> Iterator[Json]:
        """Yield the same objects' ``metadata`` alone, which costs the API server and the operator much less."""
        ...

    def apply(self, body: Json) -> Json:
        """Apply an object server-side, taking over fields of others, and return it as it is then."""
        ...

    def apply_status(self, body: Json) -> Json:
        """Apply the status of an object (with apiVersion, kind, name and namespace) server-side."""
        ...

    def create(self, body: Json) -> Json:
        """Create an object; status 409 where it exists."""
        ...

    def patch(self, kind: str, namespace: str, name: str, body: Json) -> Json:
        """Merge `body` into an object; with ``metadata.resourceVersion``, status 409 where it has changed since."""
        ...

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object and, in the background, what it owns; nothing happens where it does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach and convince the API server, for clients other than `HttpKubeApi`.

    Parameters
    ----------
    server : str
        URL.
    tls : ssl.SSLContext or None
        None for plain HTTP.
    authorization : callable
        The Authorization header's present value, or None; tokens change while the operator runs.
    """

    server: str
    tls: ssl.SSLContext | None
    authorization: Callable[[], str | None]


class HttpKubeApi:
    """`KubeApi` over HTTPS with kept connections.

    Parameters
    ----------
    configuration : Configuration
        From `configure`.
    connections : int
        Connections that are kept, one per thread that calls.
    count : callable
        Told the method and the status (0: no answer) of every request.
    """

    def __init__(
        self, configuration: Configuration, connections: int = 8, count: Callable[[str, int], None] = lambda *_: None
    ) -> None:
        self._configuration = configuration
        self._configuration.connection_pool_maxsize = connections
        self._configuration.retries = False
        self._rest: Any = RESTClientObject(configuration)
        self._count = count

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object, or None where there is none."""
        try:
            return self._request("GET", _path(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None, labels: str) -> Iterator[Json]:
        """Yield the objects with these labels, of one namespace or (None) of all."""
        for item in self._items(kind, namespace, labels, "application/json"):
            yield {**item, "apiVersion": API_VERSIONS[kind], "kind": kind}  # the items of a list do not say

    def list_metadata(self, kind: str, namespace: str | None, labels: str) -> Iterator[Json]:
        """Yield the same objects' ``metadata`` alone, which costs the API server and the operator much less."""
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        return (item["metadata"] for item in self._items(kind, namespace, labels, accept))

    def apply(self, body: Json) -> Json:
        """Apply an object server-side, taking over fields of others, and return it as it is then."""
        return self._apply(body)

    def apply_status(self, body: Json) -> Json:
        """Apply the status of an object (with apiVersion, kind, name and namespace) server-side."""
        return self._apply(body, "/status")

    def create(self, body: Json) -> Json:
        """Create an object; status 409 where it exists."""
        path = _path(body["kind"], body["metadata"]["namespace"])
        return self._request("POST", path, body, "application/json", {"fieldManager": FIELD_MANAGER})

    def patch(self, kind: str, namespace: str, name: str, body: Json) -> Json:
        """Merge `body` into an object; with ``metadata.resourceVersion``, status 409 where it has changed since."""
        path = _path(kind, namespace, name)
        return self._request("PATCH", path, body, "application/merge-patch+json", {"fieldManager": FIELD_MANAGER})

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object and, in the background, what it owns; nothing happens where it does not exist."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        try:
            self._request("DELETE", _path(kind, namespace, name), options, "application/json")
        except ApiError as error:
            if error.status != 404:
                raise

    def close(self) -> None:
        """Close the kept connections."""
        self._rest.close()

    def _items(self, kind: str, namespace: str | None, labels: str, accept: str) -> Iterator[Json]:
        query = {"labelSelector": labels, "limit": str(PAGE)}
        while True:
            answer = self._request("GET", _path(kind, namespace), query=query, accept=accept)
            yield from answer.get("items") or ()  # null where there are none
            query["continue"] = answer["metadata"].get("continue", "")
            if not query["continue"]:
                return

    def _apply(self, body: Json, subresource: str = "") -> Json:
        metadata = body["metadata"]
        path = _path(body["kind"], metadata["namespace"], metadata["name"]) + subresource
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self._request("PATCH", path, body, "application/apply-patch+yaml", query)

    def _request(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        content_type: str = "",
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> dict[str, Any]:
        url = f"{self._configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "User-Agent": FIELD_MANAGER}
        if token := _authorization(self._configuration):
            headers["Authorization"] = token
        if content_type:
            headers["Content-Type"] = content_type
        status = 0
        try:
            response = self._rest.request(
                method,
                url,
                headers=headers,
                body=body,  # the client writes it as JSON, which is YAML too
                _request_timeout=(CONNECT_SECONDS, READ_SECONDS),
            )
            status, data = response.status, response.read()
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise ApiError(0, "Unreachable", f"{method} {path}: {type(error).__name__}") from error
        finally:
            self._count(method, status)
        return _parsed(method, path, status, data, response.headers)


def group_version(kind: str) -> tuple[str, str]:
    """Return a kind's API group, empty for the core's, and version."""
    group, _, version = API_VERSIONS[kind].rpartition("/")
    return group, version


def plural(kind: str) -> str:
    """Return the word for a kind in paths."""
    return _PLURALS.get(kind, f"{kind.lower()}s")


def configure(kubeconfig: Path | None) -> Configuration:
    """Find the API server and the credentials: of this file, else of the pod's service account.

    Raises
    ------
    AnchorageError
        There are none.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            load_kube_config(str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        where = "this process runs in no pod with a service account" if kubeconfig is None else str(kubeconfig)
        raise AnchorageError(KUBECONFIG_UNUSABLE, f"{where}: {error}; name a file with --kubeconfig") from error
    return configuration


def connection_of(configuration: Configuration) -> Connection:
    """Return how other clients reach the same API server."""
    tls = None
    if configuration.host.startswith("https:"):
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
        if not configuration.verify_ssl:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    return Connection(configuration.host, tls, lambda: _authorization(configuration))


def _authorization(configuration: Configuration) -> str | None:
    token: str | None = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    return token or None


def _path(kind: str, namespace: str | None, name: str | None = None) -> str:
    group, version = group_version(kind)
    parts = [f"/apis/{group}/{version}" if group else f"/api/{version}"]
    if namespace is not None:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(plural(kind))
    if name is not None:
        parts.append(quote(name, safe=""))
    return "/".join(parts)


def _parsed(method: str, path: str, status: int, data: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer's object, or raise the refusal that it is."""
    try:
        answer = json.loads(data) if data else {}
    except ValueError:
        answer = {}
    if 200 <= status < 300 and isinstance(answer, dict):
        return answer
    known = answer if isinstance(answer, dict) else {}
    details = known.get("details") or {}
    asked = headers.get("Retry-After") or details.get("retryAfterSeconds") or 0
    try:
        retry_after = float(asked)
    except ValueError:
        retry_after = 0.0
    message = str(known.get("message") or "no message").splitlines()[0]
    raise ApiError(status, str(known.get("reason") or f"Status{status}"), f"{method} {path}: {message}", retry_after)

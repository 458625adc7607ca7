"""The Kubernetes API in the few verbs that operator and command line need, with refusals in the catalogue's terms."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from anchorage.api.errors import AnchorageError, Failure, cluster
from anchorage.transport.kube.access import ClusterAccess
from anchorage.transport.kube.execution import command_output
from anchorage.transport.kube.resources import RESOURCES, Json, Resource, json_object

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
PAGE = 100
"""Objects of one answer to a list: what is parsed at once stays with the process as memory."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class ApiError(AnchorageError):
    """The API server refused a request, or did not answer."""

    status: int
    """HTTP status; 0 where there was no answer."""
    reason: str
    """The API server's own word, such as ``Conflict``; ``Unreachable`` where there was no answer."""
    retry_after: float
    """Seconds that the API server asks to wait."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float = 0.0,
        failure: Failure = cluster.CLUSTER_REFUSED,
    ) -> None:
        super().__init__(failure, message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class EventStream(NamedTuple):
    """An open watch of the objects of one kind."""

    events: Generator[tuple[str, dict[str, Any]], None, None]
    """Type of the event (``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``) and the object; a bookmark has a version only."""
    shutdown: Callable[[], None]
    """Ends the stream, also while another thread waits for its next event, which then gets an `ApiError` or no more events."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    def document(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty one where it is none."""
        return json_object(self.body)


@dataclass(eq=False)
class KubeClient:
    """Requests to one API server on kept connections. Every verb may be called from any thread, and raises `ApiError`."""

    access: ClusterAccess
    """The API server and the credentials."""
    _: KW_ONLY
    field_manager: str
    """Name under which the API server records who wrote a field."""
    connections: int = 8
    """Connections that are kept, one per thread that calls."""
    read_seconds: float = READ_SECONDS
    """How long an answer may take; the API server itself gives up after a minute."""
    count: Callable[[str, int], None] = lambda *_: None
    """Told the method and the status (0: no answer) of every request."""
    before_write: Callable[[], None] = lambda: None
    """Called before every request that is no GET; what it raises is raised instead of sending it."""

    def __post_init__(self) -> None:
        self._pool = self.access.pool(self.connections)

    @property
    def namespace(self) -> str:
        """The namespace that the user means."""
        return self.access.namespace

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None where there is none."""
        resource = RESOURCES[kind]
        answer = self._request("GET", resource.path(namespace, name))
        if _is_missing_object(answer):
            return None
        return self._accept(answer, "get", resource, namespace, name)

    def list(self, kind: str, namespace: str | None, labels: str = "", fields: str = "") -> Iterator[dict[str, Any]]:
        """Yield the objects with these labels and fields (selectors), of one namespace or (None) of all."""
        for _, items in self.pages(kind, namespace, labels, fields):
            yield from items

    def pages(
        self, kind: str, namespace: str | None, labels: str = "", fields: str = ""
    ) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
        """Yield the same objects page by page, each with the version of the whole list, after which `watch` goes on."""
        for page in self._pages(kind, namespace, labels, "application/json", fields):
            type_fields = {"apiVersion": RESOURCES[kind].api_version, "kind": kind}  # the items of a list do not say
            yield page["metadata"]["resourceVersion"], ({**item, **type_fields} for item in page.get("items") or ())

    def latest_version(self, kind: str, namespace: str | None) -> str:
        """Return the resourceVersion that a list has now; the version of an object that was seen before is never later."""
        resource = RESOURCES[kind]
        answer = self._request("GET", resource.path(namespace), {"limit": "1"}, accept=_METADATA_ONLY)
        return str(self._accept(answer, "list", resource, namespace or "")["metadata"]["resourceVersion"])

    def list_metadata(self, kind: str, namespace: str | None, labels: str = "") -> Iterator[dict[str, Any]]:
        """Yield the same objects' ``metadata`` alone, which costs both sides much less."""
        for page in self._pages(kind, namespace, labels, _METADATA_ONLY):
            yield from (item["metadata"] for item in page.get("items") or ())  # null where there are none

    def watch(
        self, kind: str, namespace: str | None, labels: str, version: str, *, seconds: int, silent_seconds: float
    ) -> EventStream:
        """Open a stream of what happens to objects with these labels, of one namespace or (None) of all.

        The events raise `ApiError` where the stream breaks or the API server ends it by an error; status 410 says that its memory
        does not reach back to `version`.

        Parameters
        ----------
        kind, namespace, labels : str
            As `list`.
        version : str
            The resourceVersion of a list, an object or a bookmark, after which events begin.
        seconds : int
            Time after which the API server ends the stream.
        silent_seconds : float
            Time without an event or bookmark after which the stream counts as broken. The API server sends a bookmark every minute.
        """
        resource = RESOURCES[kind]
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        query |= {"labelSelector": labels} if labels else {}
        response, answer = self._open(resource.path(namespace), query, silent_seconds)
        what = f"watch {resource.full_name}"
        if answer:
            raise self._refusal(answer, what)

        def shutdown() -> None:
            with suppress(OSError, RuntimeError, ValueError):  # it has ended
                response.shutdown()

        return EventStream(self._events(response, what), shutdown)

    def create(self, body: Json) -> dict[str, Any]:
        """Create an object and return it; status 409 where it exists."""
        resource, metadata = RESOURCES[body["kind"]], body["metadata"]
        path, query = resource.path(metadata["namespace"]), {"fieldManager": self.field_manager}
        answer = self._request("POST", path, query, body)
        return self._accept(answer, "create", resource, metadata["namespace"], metadata["name"])

    def apply(self, body: Json) -> dict[str, Any]:
        """Apply an object server-side, taking over fields of others, and return it as it is then."""
        return self._apply(body)

    def apply_status(self, body: Json) -> dict[str, Any]:
        """Apply the status of an object (with apiVersion, kind, name and namespace) server-side."""
        return self._apply(body, "status")

    def patch(self, kind: str, namespace: str, name: str, change: Json) -> dict[str, Any]:
        """Merge `change` into an object (None removes a field); with ``metadata.resourceVersion``, status 409 where it has changed since."""
        resource, query = RESOURCES[kind], {"fieldManager": self.field_manager}
        path = resource.path(namespace, name)
        answer = self._request("PATCH", path, query, change, "application/merge-patch+json")
        return self._accept(answer, "patch", resource, namespace, name)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object and, in the background, what it owns; nothing happens where it does not exist."""
        resource = RESOURCES[kind]
        answer = self._request("DELETE", resource.path(namespace, name), {"propagationPolicy": "Background"})
        if not _is_missing_object(answer):
            self._accept(answer, "delete", resource, namespace, name)

    def may(self, verb: str, kind: str, *, namespace: str = "", subresource: str = "") -> bool:
        """Return whether this user may do something; an empty namespace means every one."""
        resource, review = RESOURCES[kind], RESOURCES["SelfSubjectAccessReview"]
        attributes = {
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            "namespace": namespace,
            "subresource": subresource,
        }
        body = {
            "apiVersion": review.api_version,
            "kind": review.kind,
            "spec": {"resourceAttributes": {name: value for name, value in attributes.items() if value}},
        }
        answer = self._accept(self._request("POST", review.path(None), None, body), "create", review, "")
        return bool(answer.get("status", {}).get("allowed"))

    def version(self) -> tuple[str, str | None]:
        """Return the API server's version and the ``Date`` header of its answer."""
        answer = self._request("GET", "/version")
        if answer.status != 200:
            raise self._refusal(answer, "read /version")
        return str(answer.document().get("gitVersion", "")), answer.headers.get("date")

    def logs(
        self, namespace: str, pod: str, container: str, *, follow: bool, tail: int | None = None, since: str = ""
    ) -> Iterator[str]:
        """Return the lines of a pod's log as they come; `cluster.POD_UNREACHABLE` where it has none.

        Parameters
        ----------
        namespace, pod, container : str
            The pod, and which of its containers: webhooks may have added others.
        follow : bool
            Go on until the container ends.
        tail : int or None
            Lines from the end; None: all.
        since : str
            RFC 3339 time from which on; empty: whatever there is.
        """
        query = {"container": container, "follow": str(follow).lower()} | (
            {} if tail is None else {"tailLines": str(tail)}
        )
        query |= {"sinceTime": since} if since else {}
        path = RESOURCES["Pod"].path(namespace, pod, "log")
        response, answer = self._open(path, query, None if follow else self.read_seconds)
        if answer is None:
            return (line.decode(errors="replace") for line in self._lines(response))
        if answer.status in (400, 404):
            why = answer.document().get("message", f"HTTP status {answer.status}")
            raise AnchorageError(cluster.POD_UNREACHABLE, f"pod {pod} in namespace {namespace} has no log: {why}")
        raise self._refusal(answer, "get pods/log")

    def execute(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> Iterator[bytes]:
        """Run a command in a container of a pod and yield its standard output.

        Raises
        ------
        CommandError
            It ended with another status than 0, or could not be started.
        ApiError
            The API server cannot be reached, or the stream breaks.
        """
        query = [
            *(("command", word) for word in command),
            ("container", container),
            ("stdout", "true"),
            ("stderr", "true"),
        ]
        url = self._url(RESOURCES["Pod"].path(namespace, pod, "exec"), query)
        with self._reaching():
            yield from command_output(self.access, url, self._authorization())

    def close(self) -> None:
        """Close the kept connections."""
        self._pool.clear()

    def _pages(
        self, kind: str, namespace: str | None, labels: str, accept: str, fields: str = ""
    ) -> Iterator[dict[str, Any]]:
        resource, selectors = RESOURCES[kind], {"labelSelector": labels, "fieldSelector": fields}
        query = {"limit": str(PAGE)} | {name: value for name, value in selectors.items() if value}
        while True:
            answer = self._request("GET", resource.path(namespace), query, accept=accept)
            page = self._accept(answer, "list", resource, namespace or "")
            yield page
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return

    def _apply(self, body: Json, subresource: str = "") -> dict[str, Any]:
        resource, metadata = RESOURCES[body["kind"]], body["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"], subresource)
        query = {"fieldManager": self.field_manager, "force": "true"}
        answer = self._request("PATCH", path, query, body, "application/apply-patch+yaml")  # JSON is YAML too
        return self._accept(answer, "patch", resource, metadata["namespace"], metadata["name"], subresource)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> _Answer:
        if method != "GET":
            self.before_write()
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": content_type})
        content, status = None if body is None else json.dumps(body), 0
        try:
            with self._reaching():
                response = self._send(method, self._url(path, query or {}), headers, content, self.read_seconds)
            status = response.status
        finally:
            self.count(method, status)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return _Answer(status, headers, response.data)

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: str | None,
        read_seconds: float | None,
        **options: Any,
    ) -> Any:
        from urllib3 import Timeout

        headers = {**headers, **self._authorization(), "User-Agent": self.field_manager}
        timeout = Timeout(connect=CONNECT_SECONDS, read=read_seconds)
        return self._pool.request(method, url, headers=headers, body=body, timeout=timeout, retries=False, **options)

    def _open(self, path: str, query: Mapping[str, str], read_seconds: float | None) -> tuple[Any, _Answer | None]:
        """Request a stream; return the open response, and where it is none (a status other than 200) the answer."""
        status = 0
        try:
            with self._reaching():
                response = self._send("GET", self._url(path, query), {}, None, read_seconds, preload_content=False)
                status = response.status
                return response, None if status == 200 else _Answer(status, {}, response.data)
        finally:
            self.count("GET", status)

    def _events(self, response: Any, what: str) -> Generator[tuple[str, dict[str, Any]], None, None]:
        for line in self._lines(response):
            event = json_object(line)
            body = event.get("object")
            if not isinstance(body, dict):
                raise ApiError(0, "Unreachable", f"{self._where()} sent a line that is no event")
            if event.get("type") == "ERROR":
                raise self._refusal(_Answer(int(body.get("code", 0)), {}, json.dumps(body).encode()), what)
            yield str(event.get("type")), body

    def _lines(self, response: Any) -> Iterator[bytes]:
        rest = b""
        try:
            with self._reaching():
                while piece := response.read1(65_536):
                    *complete_lines, rest = (rest + piece).split(b"\n")
                    yield from complete_lines
            if rest:
                yield rest
        finally:
            response.close()

    def _url(self, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]]) -> str:
        return f"{self.access.server}{path}" + (f"?{urlencode(query)}" if query else "")

    def _authorization(self) -> dict[str, str]:
        value = self.access.authorization()
        return {"authorization": value} if value else {}

    def _accept(
        self, answer: _Answer, verb: str, resource: Resource, namespace: str, name: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """Return the answer's object, or raise the refusal that it is."""
        if 200 <= answer.status < 300:
            return answer.document()
        if answer.status == 404 and not _is_missing_object(answer):
            unknown = f"{self._where()} does not know {resource.full_name}; install charts/anchorage there first"
            raise ApiError(404, "NotFound", unknown, failure=cluster.RESOURCES_NOT_INSTALLED)
        what = f"{resource.full_name}{f'/{subresource}' if subresource else ''}{f' {name!r}' if name else ''}"
        inside = f" in namespace {namespace!r}" if resource.namespaced and namespace else ""
        raise self._refusal(answer, f"{verb} {what}{inside}")

    def _refusal(self, answer: _Answer, what: str) -> ApiError:
        status, where = answer.document(), self._where()
        message = " ".join(str(status.get("message", "")).split()) or f"HTTP status {answer.status}"
        failure, text = cluster.CLUSTER_REFUSED, f"{where} refused to {what}: {message}"
        if answer.status == 401:
            failure, text = cluster.CLUSTER_UNAUTHENTICATED, f"{where} does not accept the credentials: {message}"
        elif answer.status == 403:
            failure, text = cluster.CLUSTER_FORBIDDEN, f"this user may not {what} ({where}): {message}"
        asked = answer.headers.get("retry-after") or (status.get("details") or {}).get("retryAfterSeconds") or 0
        try:
            retry_after = float(asked)
        except ValueError:
            retry_after = 0.0
        reason = str(status.get("reason") or f"Status{answer.status}")
        return ApiError(answer.status, reason, text, retry_after, failure)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Say in the catalogue's terms that the server cannot be reached, or that a stream broke."""
        from urllib3.exceptions import HTTPError

        try:
            yield
        except (HTTPError, OSError) as error:
            context = f" (context {self.access.context!r})" if self.access.context else ""
            why = f"{urlsplit(self.access.server).netloc}{context}: {_innermost(error)}"
            raise ApiError(0, "Unreachable", why, failure=cluster.CLUSTER_UNREACHABLE) from error

    def _where(self) -> str:
        return f"the cluster of context {self.access.context!r}" if self.access.context else "the cluster"


def _is_missing_object(answer: _Answer) -> bool:
    """Return whether an answer says that the object, not the whole resource, does not exist."""
    status = answer.document() if answer.status == 404 else {}
    return status.get("reason") == "NotFound" and bool((status.get("details") or {}).get("name"))


def _innermost(error: BaseException) -> str:
    """Return the innermost cause in one line, without the addresses of objects."""
    while (cause := error.__cause__ or error.__context__) is not None and isinstance(cause, Exception):
        error = cause
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__

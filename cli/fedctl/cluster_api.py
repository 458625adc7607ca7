"""The few verbs that fedctl needs of a cluster, and their refusals in the catalogue's terms."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from anchorage.api.errors import AnchorageError, cluster
from fedctl.cluster_connection import Answer, ClusterConnection

GROUP = "anchorage.dev"
FIELD_MANAGER = "fedctl"
PAGE = 500

Json = dict[str, Any]
"""A Kubernetes object as plain values."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, as the API's paths name it.

    Parameters
    ----------
    group, version, plural, kind : str
        An empty group is the core group.
    namespaced : bool
        Whether its objects lie in namespaces.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The name that a role would use, such as ``silos.anchorage.dev``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, of an object or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        return f"{root}{inside}/{self.plural}" + "".join(
            f"/{quote(part, safe='')}" for part in (name, subresource) if part
        )


FEDERATIONS = Resource(GROUP, "v1alpha1", "federations", "Federation")
SILOS = Resource(GROUP, "v1alpha1", "silos", "Silo")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


class ClusterApi:
    """Objects, logs and commands of one namespace.

    Parameters
    ----------
    connection : ClusterConnection
        The way to the API server.
    """

    def __init__(self, connection: ClusterConnection) -> None:
        self.connection = connection
        self.namespace = connection.namespace

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None:
        """Return an object, None where there is none.

        Raises
        ------
        AnchorageError
            The server cannot be reached or refuses, or does not know the resource.
        """
        path = resource.path(self.namespace if namespace is None else namespace, name)
        answer = self.connection.request("GET", path)
        if answer.status == 404 and self._knows(resource, answer):
            return None
        return self._accepted(answer, "get", resource, name)

    def list_all(self, resource: Resource, *, namespace: str | None = None, labels: str = "") -> list[Json]:
        """Return every object of a resource, of those with the labels where a selector is given.

        Raises
        ------
        AnchorageError
            As `get`.
        """
        path = resource.path(self.namespace if namespace is None else namespace)
        query = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {})
        found: list[Json] = []
        while True:
            page = self._accepted(self.connection.request("GET", path, query), "list", resource)
            found += page.get("items", [])
            query["continue"] = page.get("metadata", {}).get("continue", "")
            if not query["continue"]:
                return found

    def create(self, resource: Resource, document: Json) -> Json:
        """Make an object and return it.

        Raises
        ------
        AnchorageError
            As `get`; the object may exist already.
        """
        path = resource.path(self.namespace)
        answer = self.connection.request("POST", path, {"fieldManager": FIELD_MANAGER}, document)
        return self._accepted(answer, "create", resource, document.get("metadata", {}).get("name", ""))

    def merge(self, resource: Resource, name: str, change: Json) -> Json:
        """Change fields of an object (JSON merge patch: None removes a field) and return it.

        Raises
        ------
        AnchorageError
            As `get`.
        """
        path, query = resource.path(self.namespace, name), {"fieldManager": FIELD_MANAGER}
        answer = self.connection.request("PATCH", path, query, change, "application/merge-patch+json")
        return self._accepted(answer, "patch", resource, name)

    def apply_status(self, resource: Resource, document: Json) -> Json:
        """Write fields of an object's status by server-side apply, also where somebody else wrote them before.

        Raises
        ------
        AnchorageError
            As `get`.
        """
        name = document["metadata"]["name"]
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        path = resource.path(self.namespace, name, "status")
        answer = self.connection.request("PATCH", path, query, document, "application/apply-patch+yaml")
        return self._accepted(answer, "patch", resource, name, "status")

    def delete(self, resource: Resource, name: str) -> bool:
        """Delete an object and what it owns; return whether there was one.

        Raises
        ------
        AnchorageError
            As `get`.
        """
        path, query = resource.path(self.namespace, name), {"propagationPolicy": "Background"}
        answer = self.connection.request("DELETE", path, query)
        if answer.status == 404 and self._knows(resource, answer):
            return False
        self._accepted(answer, "delete", resource, name)
        return True

    def may(self, verb: str, resource: Resource, *, namespace: str = "", subresource: str = "") -> bool:
        """Say whether this user may do something; an empty namespace means every one.

        Raises
        ------
        AnchorageError
            As `get`.
        """
        attributes = {
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            "namespace": namespace,
            "subresource": subresource,
        }
        review = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": {name: value for name, value in attributes.items() if value}},
        }
        answer = self.connection.request("POST", ACCESS_REVIEWS.path(""), None, review)
        return bool(self._accepted(answer, "create", ACCESS_REVIEWS).get("status", {}).get("allowed"))

    def version(self) -> Answer:
        """Return what the server says of itself, with its clock in the header ``date``.

        Raises
        ------
        AnchorageError
            It cannot be reached, or does not accept the credentials.
        """
        answer = self.connection.request("GET", "/version")
        if answer.status != 200:
            raise self._refusal(answer, "read /version")
        return answer

    def logs(self, pod: str, *, follow: bool, tail: int | None = None, since: str = "") -> Iterator[str]:
        """Return the lines of a pod's log as they come.

        Parameters
        ----------
        pod : str
            Name of the pod; it has one container.
        follow : bool
            Go on until the container ends.
        tail : int or None
            Lines from the end; None: all.
        since : str
            RFC 3339 time from which on; empty: whatever there is.

        Raises
        ------
        AnchorageError
            As `get`; or there is no such pod, or it has not started.
        """
        query = {"follow": str(follow).lower()} | ({} if tail is None else {"tailLines": str(tail)})
        query |= {"sinceTime": since} if since else {}
        lines = self.connection.lines(PODS.path(self.namespace, pod, "log"), query, follow=follow)
        if not isinstance(lines, Answer):
            return lines
        if lines.status in (400, 404):
            why = lines.document().get("message", f"HTTP status {lines.status}")
            raise AnchorageError(cluster.POD_UNREACHABLE, f"pod {pod} in namespace {self.namespace} has no log: {why}")
        raise self._refusal(lines, f"get {PODS.plural}/log")

    def execute(self, pod: str, *command: str) -> Iterator[bytes]:
        """Run a command in a pod and yield its standard output.

        Raises
        ------
        CommandError
            It ended with another status than 0, or could not be started.
        AnchorageError
            The server cannot be reached.
        """
        return self.connection.execute(PODS.path(self.namespace, pod, "exec"), command)

    def _accepted(
        self, answer: Answer, verb: str, resource: Resource, name: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        if answer.status < 300:
            return answer.document()
        if answer.status == 404 and not self._knows(resource, answer):
            raise AnchorageError(
                cluster.RESOURCES_NOT_INSTALLED,
                f"{self._where()} does not know {resource.full_name}; install charts/anchorage there first",
            )
        what = f"{resource.full_name}{f'/{subresource}' if subresource else ''}{f' {name!r}' if name else ''}"
        raise self._refusal(answer, f"{verb} {what}{self._inside(resource)}")

    def _refusal(self, answer: Answer, what: str) -> AnchorageError:
        said: Mapping[str, Any] = answer.document()
        message = " ".join(str(said.get("message", "")).split()) or f"HTTP status {answer.status}"
        if answer.status == 401:
            return AnchorageError(
                cluster.CLUSTER_UNAUTHENTICATED, f"{self._where()} does not accept the credentials: {message}"
            )
        if answer.status == 403:
            return AnchorageError(cluster.CLUSTER_FORBIDDEN, f"this user may not {what} ({self._where()}): {message}")
        return AnchorageError(cluster.CLUSTER_REFUSED, f"{self._where()} refused to {what}: {message}")

    @staticmethod
    def _knows(resource: Resource, answer: Answer) -> bool:
        """Say whether a 404 is about the object and not about the whole resource."""
        return answer.document().get("reason") == "NotFound" and bool(answer.document().get("details", {}).get("name"))

    def _where(self) -> str:
        return f"the cluster of context {self.connection.context!r}"

    def _inside(self, resource: Resource) -> str:
        return f" in namespace {self.namespace!r}" if resource.namespaced else ""

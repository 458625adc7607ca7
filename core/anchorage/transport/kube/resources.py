"""The kinds of objects that operator and command line handle, and their paths in the API."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Json = Mapping[str, Any]
"""A Kubernetes object or a part of one, as plain values."""
NEW_AUTHORITY = "anchorage.dev/new-authority"
"""Annotation of a Federation, of any value: there is to be a new authority beside the present one; without it, one alone again."""

STATE_LOST = "anchorage.dev/state-lost"
"""Annotation of a Federation: the number of the last committed round, which is known to be lost; training goes on from what the volume has."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object."""

    kind: str
    plural: str
    """The word for the kind in paths."""
    api_version: str
    """Such as ``apps/v1``; the core group has none before its version."""
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version within the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def full_name(self) -> str:
        """The name that a role uses, such as ``silos.anchorage.dev``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the path of the collection (of every namespace where none is given), of an object or of its subresource."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        inside = ["namespaces", namespace] if self.namespaced and namespace else []
        parts = [*inside, self.plural, *filter(None, (name, subresource))]
        return "/".join([root, *(quote(part, safe="") for part in parts)])


RESOURCES: Mapping[str, Resource] = {
    resource.kind: resource
    for resource in (
        Resource("Federation", "federations", "anchorage.dev/v1alpha1"),
        Resource("Silo", "silos", "anchorage.dev/v1alpha1"),
        Resource("StatefulSet", "statefulsets", "apps/v1"),
        Resource("Deployment", "deployments", "apps/v1"),
        Resource("Service", "services", "v1"),
        Resource("ConfigMap", "configmaps", "v1"),
        Resource("ServiceAccount", "serviceaccounts", "v1"),
        Resource("Secret", "secrets", "v1"),
        Resource("Pod", "pods", "v1"),
        Resource("PersistentVolumeClaim", "persistentvolumeclaims", "v1"),
        Resource("Event", "events", "v1"),
        Resource("NetworkPolicy", "networkpolicies", "networking.k8s.io/v1"),
        Resource("EndpointSlice", "endpointslices", "discovery.k8s.io/v1"),
        Resource("Lease", "leases", "coordination.k8s.io/v1"),
        Resource("CertificateRequest", "certificaterequests", "cert-manager.io/v1"),
        Resource("Role", "roles", "rbac.authorization.k8s.io/v1"),
        Resource("RoleBinding", "rolebindings", "rbac.authorization.k8s.io/v1"),
        Resource("Namespace", "namespaces", "v1", namespaced=False),
        Resource("Node", "nodes", "v1", namespaced=False),
        Resource("StorageClass", "storageclasses", "storage.k8s.io/v1", namespaced=False),
        Resource("CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io/v1", namespaced=False),
        Resource("SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io/v1", namespaced=False),
    )
}
"""Every kind that is read or written, by its name."""


def kube_object(kind: str, metadata: Json, **content: Any) -> dict[str, Any]:
    """Build an object of a kind, of its metadata and its other parts by name."""
    return {"apiVersion": RESOURCES[kind].api_version, "kind": kind, "metadata": metadata, **content}


def json_object(text: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty one where the text is none."""
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}

"""Names, labels, ports and folders of a federation's objects in a cluster."""

from collections.abc import Mapping
from typing import Any

from anchorage.api.base import API_VERSION
from anchorage.transport.kube.resources import Json

FIELD_MANAGER = "anchorage-operator"

SILOS_PORT = 8443
ENROLMENT_PORT = 8444
CONTROL_PORT = 8445
PROBES_PORT = 8080

FEDERATION_LABEL = "anchorage.dev/federation"
SILO_LABEL = "anchorage.dev/silo"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
COMPONENT_LABEL = "app.kubernetes.io/component"
NAME_LABEL = "app.kubernetes.io/name"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE_GATE = "kueue.x-k8s.io/admission"
"""By which Kueue queues a pod, and by which it keeps it from being scheduled."""
INSTANCE_LABEL = "app.kubernetes.io/instance"

CONFIG_HASH = "anchorage.dev/config-hash"
"""Annotation of a pod template: hash of the ConfigMap that the pod reads at its start."""
ASKED_HASH = "anchorage.dev/asked-hash"
"""Annotation of a StatefulSet: what the documents, not the operator's version and settings, ask of its pod."""
APPLIED_HASH = "anchorage.dev/applied-hash"
"""Annotation of a child: hash of the object as it was applied last."""
OPERATED_BY = "anchorage.dev/operated-by"
"""Annotation of a child: the installation that applied it last, ``namespace/name``."""
ACCEPTED_SPEC = "anchorage.dev/accepted-spec"
"""Annotation of a ConfigMap: what of the spec that is in use its data lack, as JSON."""
ARGOCD_NO_PRUNE = {"argocd.argoproj.io/sync-options": "Prune=false"}
"""Annotations of what outlives its Federation."""
AUTHORITY_HASH = "anchorage.dev/authority-hash"
"""Annotation of an agent's StatefulSet: hash of the authority that the agent enrols with (`AuthorityFacts.origin`)."""

CONFIG_FOLDER = "/etc/anchorage"
TLS_FOLDER = "/etc/anchorage-tls"
TOKEN_FOLDER = "/etc/anchorage-enrolment"
AUTHORITY_FOLDER = "/etc/anchorage-authority"
STATE_FOLDER = "/var/lib/anchorage"
DATA_FOLDER = "/data"
STATE_VOLUME = "state"
FEDERATION_FILE = "federation.yaml"
AGENT_FILE = "silo.yaml"
POLICY_FILE = "policy.yaml"
"""Files of the ConfigMaps that server and agent read."""

LONGEST_FEDERATION = 45
LONGEST_SILO = 47
"""Longest names: a StatefulSet's is at most 52 long, as its pods carry it in a label with a hash behind."""


def server_name(federation: str) -> str:
    """Name of the server's objects."""
    return f"{federation}-server"


def public_name(federation: str) -> str:
    """Name of the external Service for hospitals."""
    return f"{federation}-server-public"


def agent_name(silo: str) -> str:
    """Name of the objects of a managed silo's agent."""
    return f"{silo}-silo"


def authority_name(federation: str) -> str:
    """Name of the authority's Secret, and of the ConfigMap with its certificate."""
    return f"{federation}-authority"


def server_tls_name(federation: str) -> str:
    """Name of the Secret with the server's key and certificate."""
    return f"{federation}-server-tls"


def tracking_login_name(federation: str) -> str:
    """Name of the Secret with the server's user and password at the chart's MLflow."""
    return f"{federation}-tracking-login"


def enrolment_name(silo: str) -> str:
    """Name of the Secret with a silo's invitation."""
    return f"{silo}-enrolment"


def server_labels(federation: str) -> dict[str, str]:
    """Labels of the server's objects."""
    return _labels(federation, "anchorage-server", "server")


def authority_labels(federation: str) -> dict[str, str]:
    """Labels of the authority's Secret: not `INSTANCE_LABEL`, by which Argo CD takes what it may prune for its own."""
    labels = _labels(federation, "anchorage-authority", "authority")
    del labels[INSTANCE_LABEL]
    return labels


def agent_labels(federation: str, silo: str) -> dict[str, str]:
    """Labels of the objects of a silo."""
    return _labels(federation, "anchorage-silo", "silo") | {SILO_LABEL: silo}


def selector(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the label selector of the pods, which never changes."""
    return {key: value for key, value in labels.items() if key in (COMPONENT_LABEL, FEDERATION_LABEL, SILO_LABEL)}


def child_metadata(owner: Json, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of an object that belongs to a Federation or a Silo."""
    namespace = owner["metadata"]["namespace"]
    return {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner_reference(owner)]}


def owner_reference(owner: Json) -> dict[str, Any]:
    """Return an owner reference to a Federation or a Silo, for garbage collection."""
    return {**_reference(owner, "name", "uid"), "controller": True}


def involved_object(owner: Json) -> dict[str, Any]:
    """Return the ``involvedObject`` of an Event about an object."""
    return _reference(owner, "name", "namespace", "uid")


def _reference(owner: Json, *fields: str) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": owner["kind"]} | {name: owner["metadata"][name] for name in fields}


def _labels(federation: str, name: str, component: str) -> dict[str, str]:
    return {
        NAME_LABEL: name,
        INSTANCE_LABEL: federation,
        COMPONENT_LABEL: component,
        MANAGED_BY_LABEL: FIELD_MANAGER,
        FEDERATION_LABEL: federation,
    }

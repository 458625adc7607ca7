"""Network policies of the pods; effective only with a network plug-in that enforces them."""

from typing import Any
from urllib.parse import urlsplit

from anchorage.transport.kube.resources import Json, kube_object
from anchorage_operator import names

OPERATOR_NAME = "anchorage-operator"
"""Label `NAME_LABEL` of the operator's own pod, as the chart sets it."""
_DNS = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
_SCHEME_PORTS = {"http": 80, "https": 443}


def server_network_policy(metadata: Json, tracking: str | None) -> dict[str, Any]:
    """Build the server's policy.

    In: silos and enrolment from anywhere, as hospitals come from outside the cluster; control from the operator alone; probes and
    metrics from pods of the cluster. Out: names and MLflow.

    Parameters
    ----------
    metadata : Json
        The policy's metadata; its labels are the pod's.
    tracking : str or None
        MLflow's URI.
    """
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": {names.NAME_LABEL: OPERATOR_NAME}}}
    uri = urlsplit(tracking or "")
    port = uri.port or _SCHEME_PORTS.get(uri.scheme)  # none for a file
    ingress = [_tcp(names.SILOS_PORT, names.ENROLMENT_PORT), {"from": [operator]} | _tcp(names.CONTROL_PORT), _PROBES]
    return _policy(metadata, ingress, [_DNS, *([_tcp(port)] if port is not None else ())])


def agent_network_policy(metadata: Json, federation: str) -> dict[str, Any]:
    """Build a managed agent's policy: ingress for probes and metrics only; egress to its federation's server and DNS."""
    server = {"podSelector": {"matchLabels": names.selector(names.server_labels(federation))}}
    return _policy(metadata, [_PROBES], [_DNS, {"to": [server]} | _tcp(names.SILOS_PORT, names.ENROLMENT_PORT)])


def _policy(metadata: Json, ingress: list[dict[str, Any]], egress: list[dict[str, Any]]) -> dict[str, Any]:
    pods, both = {"matchLabels": names.selector(metadata["labels"])}, ["Ingress", "Egress"]
    spec = {"podSelector": pods, "policyTypes": both, "ingress": ingress, "egress": egress}
    return kube_object("NetworkPolicy", metadata, spec=spec)


def _tcp(*ports: int) -> dict[str, Any]:
    return {"ports": [{"protocol": "TCP", "port": port} for port in ports]}


_PROBES = {"from": [{"namespaceSelector": {}}]} | _tcp(names.PROBES_PORT)
"""Probes and metrics, for pods of the cluster."""

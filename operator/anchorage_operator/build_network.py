"""Network policies of the pods; effective only with a network plug-in that enforces them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from anchorage_operator.names import (
    CONTROL_PORT,
    ENROLMENT_PORT,
    NAME_LABEL,
    PROBES_PORT,
    SILOS_PORT,
    selector,
    server_labels,
)

OPERATOR_NAME = "anchorage-operator"
"""Label `NAME_LABEL` of the operator's own pod, as the chart sets it."""
_DNS = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
_SCHEME_PORTS = {"http": 80, "https": 443}


def server_network_policy(
    metadata: Mapping[str, Any], match: Mapping[str, str], tracking: str | None
) -> dict[str, Any]:
    """Build the server's policy.

    In: silos and enrolment from anywhere, as hospitals come from outside the cluster; control from the operator alone; probes and
    metrics from pods of the cluster. Out: names and MLflow.

    Parameters
    ----------
    metadata : mapping
        The policy's metadata.
    match : mapping
        Labels of the server's pod.
    tracking : str or None
        MLflow's URI.
    """
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": {NAME_LABEL: OPERATOR_NAME}}}
    egress: list[dict[str, Any]] = [_DNS]
    port = _port(tracking)
    if port is not None:
        egress.append({"ports": [_tcp(port)]})
    ingress = [
        {"ports": [_tcp(SILOS_PORT), _tcp(ENROLMENT_PORT)]},
        {"from": [operator], "ports": [_tcp(CONTROL_PORT)]},
        {"from": [{"namespaceSelector": {}}], "ports": [_tcp(PROBES_PORT)]},
    ]
    return _policy(metadata, match, ingress, egress)


def agent_network_policy(metadata: Mapping[str, Any], match: Mapping[str, str], federation: str) -> dict[str, Any]:
    """Build a managed agent's policy: ingress for probes and metrics only; egress to its federation's server and DNS."""
    server = {"podSelector": {"matchLabels": selector(server_labels(federation))}}
    ingress = [{"from": [{"namespaceSelector": {}}], "ports": [_tcp(PROBES_PORT)]}]
    egress = [_DNS, {"to": [server], "ports": [_tcp(SILOS_PORT), _tcp(ENROLMENT_PORT)]}]
    return _policy(metadata, match, ingress, egress)


def _policy(
    metadata: Mapping[str, Any], match: Mapping[str, str], ingress: list[dict[str, Any]], egress: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": dict(match)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}


def _port(uri: str | None) -> int | None:
    """Return the port of a network URI, None for a file URI."""
    parts = urlsplit(uri or "")
    return parts.port or _SCHEME_PORTS.get(parts.scheme)

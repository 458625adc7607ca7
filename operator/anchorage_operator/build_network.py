"""Network policies of the pods; effective only with a network plug-in that enforces them."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from anchorage.transport.kube.resources import Json, kube_object
from anchorage_operator import names

OPERATOR_NAME = "anchorage-operator"
"""Label `NAME_LABEL` of the operator's own pod, as the chart sets it."""
DNS_PORTS = (53, 5353)
"""Of name servers: many plug-ins judge a connection by the pod's port, which is 5353 on OpenShift."""
PRIVATE_NETWORKS = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "fc00::/7",
    "fe80::/10",
)
"""Where name servers are that are no pods: a cache on the node, the node itself, a resolver of the site; and the cluster's Services."""
_SCHEME_PORTS = {"http": 80, "https": 443}


def server_network_policy(metadata: Json, tracking: str | None, dns_cidrs: Sequence[str]) -> dict[str, Any]:
    """Build the server's policy.

    In: silos and enrolment from anywhere, as hospitals come from outside the cluster; control from the operator alone; metrics
    from what scrapes them. Out: names and MLflow.

    Parameters
    ----------
    metadata : Json
        The policy's metadata; its labels are the pod's.
    tracking : str or None
        MLflow's URI.
    dns_cidrs : sequence of str
        Addresses of name servers that are no pods; empty for `PRIVATE_NETWORKS`.
    """
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": {names.NAME_LABEL: OPERATOR_NAME}}}
    port = _port_of(tracking or "")
    ingress = [_tcp(names.SILOS_PORT, names.ENROLMENT_PORT), {"from": [operator]} | _tcp(names.CONTROL_PORT), _METRICS]
    return _policy(metadata, ingress, [_dns(dns_cidrs), *([_tcp(port)] if port is not None else ())])


def agent_network_policy(metadata: Json, federation: str, dns_cidrs: Sequence[str]) -> dict[str, Any]:
    """Build a managed agent's policy: ingress for metrics only; egress to its federation's server and DNS."""
    server = {"podSelector": {"matchLabels": names.selector(names.server_labels(federation))}}
    to_server = {"to": [server]} | _tcp(names.SILOS_PORT, names.ENROLMENT_PORT)
    return _policy(metadata, [_METRICS], [_dns(dns_cidrs), to_server])


def _port_of(uri: str) -> int | None:
    """Return the port of MLflow's URI; None for a file, and for a URI that is none, which the server tells."""
    try:
        parts = urlsplit(uri)
        return parts.port or _SCHEME_PORTS.get(parts.scheme)
    except ValueError:
        return None


def _policy(metadata: Json, ingress: list[dict[str, Any]], egress: list[dict[str, Any]]) -> dict[str, Any]:
    pods, both = {"matchLabels": names.selector(metadata["labels"])}, ["Ingress", "Egress"]
    spec = {"podSelector": pods, "policyTypes": both, "ingress": ingress, "egress": egress}
    return kube_object("NetworkPolicy", metadata, spec=spec)


def _dns(cidrs: Sequence[str]) -> dict[str, Any]:
    """Build the rule for names: any pod of the cluster, and name servers that are no pods; not the internet, to which names are a way out."""
    outside = [{"ipBlock": {"cidr": cidr}} for cidr in cidrs or PRIVATE_NETWORKS]
    ports = [{"protocol": protocol, "port": port} for port in DNS_PORTS for protocol in ("UDP", "TCP")]
    return {"to": [{"namespaceSelector": {}}, *outside], "ports": ports}


def _tcp(*ports: int) -> dict[str, Any]:
    return {"ports": [{"protocol": "TCP", "port": port} for port in ports]}


_SCRAPERS = {
    "key": names.NAME_LABEL,
    "operator": "In",
    "values": ["prometheus", "vmagent", "alloy", "opentelemetry-collector"],
}
_METRICS = {"from": [{"namespaceSelector": {}, "podSelector": {"matchExpressions": [_SCRAPERS]}}]} | _tcp(
    names.PROBES_PORT
)
"""Metrics, for what scrapes them; the kubelet's probes come from the pod's own node, which no policy keeps out."""

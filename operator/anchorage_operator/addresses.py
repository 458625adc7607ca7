"""Addresses of a federation's server and the names in its certificate."""

from collections.abc import Iterator

from anchorage.api.federation import FederationSpec
from anchorage_operator.names import ENROLMENT_PORT, SILOS_PORT, public_name, server_name
from anchorage_operator.observed import Observed
from anchorage_operator.settings import OperatorSettings


def endpoints(observed: Observed, spec: FederationSpec, settings: OperatorSettings) -> tuple[str, str]:
    """Return the addresses of the server and of enrolment, each ``host:port``.

    The spec's addresses come first, then the load balancer's, then the service's name inside the cluster. Where the spec has only
    an address for silos, enrolment is taken to be at the same host.
    """
    server = spec.server
    host = next(_balancers(observed), None) or _service_names(observed, settings)[-1]
    silos = server.address or f"{f'[{host}]' if ':' in host else host}:{SILOS_PORT}"
    node_port = server.service.node_ports.enrolment if server.service.node_ports is not None else None
    port = node_port if server.address is not None and node_port is not None else ENROLMENT_PORT
    return silos, server.enrolment_address or f"{silos.rpartition(':')[0]}:{port}"


def certificate_names(observed: Observed, spec: FederationSpec, settings: OperatorSettings) -> tuple[str, ...]:
    """Return all names for the server's certificate, sorted."""
    addresses = (spec.server.address, spec.server.enrolment_address)
    hosts = {address.rpartition(":")[0].strip("[]") for address in addresses if address is not None}
    inside = {*_service_names(observed, settings), "localhost", "127.0.0.1"}
    return tuple(sorted(inside | hosts | set(spec.server.names) | set(_balancers(observed))))


def _service_names(observed: Observed, settings: OperatorSettings) -> tuple[str, ...]:
    name = server_name(observed.name)
    inside = f"{name}.{observed.namespace}"
    return name, inside, f"{inside}.svc", f"{inside}.svc.{settings.cluster_domain}"


def _balancers(observed: Observed) -> Iterator[str]:
    service = observed.children.get(("Service", public_name(observed.name)), {})
    for ingress in service.get("status", {}).get("loadBalancer", {}).get("ingress", ()):
        place = ingress.get("hostname") or ingress.get("ip")
        if place:
            yield str(place)

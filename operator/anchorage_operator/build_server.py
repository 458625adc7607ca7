"""The objects of a federation's server. Pure: from documents to Kubernetes objects."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anchorage.api.federation import Federation, FederationSpec, Service
from anchorage.api.pod import Amount, Resources
from anchorage.transport.kube.resources import Json, kube_object
from anchorage_operator import build_pod, names
from anchorage_operator.build_network import server_network_policy
from anchorage_operator.drift import digest
from anchorage_operator.in_use import CLUSTER_ONLY, InUse, accepted_spec, cluster_only
from anchorage_operator.pod_policy import federation_claims, permitted_claims, permitted_pod
from anchorage_operator.secret_facts import PASSWORD, TOKEN, USER
from anchorage_operator.situation import Situation
from anchorage_operator.tracking import credentials_secret, has_credentials
from anchorage_operator.volumes import claim_template
from anchorage_operator.yaml_text import as_yaml

REQUESTS = {"cpu": "100m", "memory": "512Mi"}
"""Requests of a server that trains, where the spec says nothing."""
RESULTS_REQUESTS: dict[str, Amount] = {"cpu": "20m", "memory": "128Mi"}
"""Requests of a server that only keeps the results at hand."""
KEPT_LIMITS = ("cpu", "memory", "ephemeral-storage")
"""Limits that a server keeps when it only keeps the results at hand: a quota may refuse a pod without them. Devices it gives back."""


def server_objects(situation: Situation, in_use: InUse[Federation], authority: str) -> Iterator[dict[str, Any]]:
    """Yield the server's objects in the order in which they must be created.

    There is no pod before the Secrets that it reads when it starts: it would wait for minutes for one, and do without the other.

    Parameters
    ----------
    situation : Situation
        The federation.
    in_use : InUse
        The Federation with the spec in use.
    authority : str
        The authority's certificate, PEM.
    """
    federation, spec, name = in_use.object, in_use.typed.spec, situation.observed.name
    labels, service = names.server_labels(name), spec.server.service
    metadata = names.child_metadata(federation, names.server_name(name), labels)
    tracking = spec.tracking.uri or situation.settings.tracking_uri
    config = _configuration(federation, tracking)
    authority_metadata = names.child_metadata(federation, names.authority_name(name), labels)
    yield kube_object("ConfigMap", authority_metadata, data={"ca.pem": authority})
    yield kube_object("ConfigMap", {**metadata, "annotations": accepted_spec(cluster_only(federation))}, data=config)
    yield service_account(metadata)
    inside = service.type == "ClusterIP"
    yield _service(metadata, "ClusterIP", service.annotations if inside else {}, _INSIDE_PORTS)
    if not inside:
        public = names.child_metadata(federation, names.public_name(name), labels)
        yield _service(public, service.type, service.annotations, _public_ports(service))
    yield server_network_policy(metadata, tracking, situation.settings.dns_cidrs)
    if situation.observed.server_certificate is not None and has_credentials(situation, spec):
        yield _stateful_set(situation, spec, metadata, digest(config))


def _configuration(federation: Json, tracking: str | None) -> dict[str, str]:
    """Return the server's configuration and the federation's document, without silos, which may change while it runs."""
    server = {
        "federation": f"{names.CONFIG_FOLDER}/{names.FEDERATION_FILE}",
        "state": names.STATE_FOLDER,
        "dataRoot": names.DATA_FOLDER,
        "listen": f"[::]:{names.SILOS_PORT}",
        "enrolListen": f"[::]:{names.ENROLMENT_PORT}",
        "controlListen": f"[::]:{names.CONTROL_PORT}",
        "statusListen": f"[::]:{names.PROBES_PORT}",
        "tls": names.TLS_FOLDER,
        "stay": True,
    }
    spec = {key: value for key, value in federation["spec"].items() if key not in CLUSTER_ONLY}
    if tracking is not None:
        spec["tracking"] = {**spec.get("tracking", {}), "uri": tracking}
    metadata = {"name": federation["metadata"]["name"]}
    document = kube_object("Federation", metadata, spec=spec)
    return {"server.yaml": as_yaml(server), names.FEDERATION_FILE: as_yaml(document)}


def service_account(metadata: Json) -> dict[str, Any]:
    """Build a service account without permissions and without a token."""
    return kube_object("ServiceAccount", metadata, automountServiceAccountToken=False)


def _service(
    metadata: Json, kind: str, annotations: Mapping[str, str], ports: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Build a Service. It includes the pod before it is ready, so that the operator can ask what it is waiting for."""
    match = names.selector(metadata["labels"])
    spec = {"type": kind, "selector": match, "ports": ports, "publishNotReadyAddresses": True}
    return kube_object("Service", {**metadata, **({"annotations": annotations} if annotations else {})}, spec=spec)


def _public_ports(service: Service) -> list[dict[str, Any]]:
    """Return the ports for hospitals: silos and enrolment only."""
    numbers = service.node_ports.model_dump() if service.node_ports is not None else {}
    return [port | ({"nodePort": n} if (n := numbers.get(port["name"])) is not None else {}) for port in _PUBLIC_PORTS]


def _stateful_set(situation: Situation, spec: FederationSpec, metadata: Json, config_hash: str) -> dict[str, Any]:
    server, settings = spec.server, situation.settings
    resources = settings.pod_overrides.permitted_resources(server.resources)
    limits = {name: amount for name, amount in resources.limits.items() if name in KEPT_LIMITS}
    results = build_pod.resources_of(Resources(requests=RESULTS_REQUESTS, limits=limits), {})
    secret = credentials_secret(spec, situation.observed.name, settings)
    tls = names.server_tls_name(situation.observed.name)
    parts = build_pod.PodParts(
        metadata,
        container="server",
        module="anchorage_server.results" if situation.keeps_results else "anchorage_server",
        config="server.yaml",
        config_hash=config_hash,
        image=settings.images.server,
        overrides=build_pod.merge_overrides(permitted_pod(server.pod, situation.observed, settings), settings.server),
        resources=results if situation.results_only else build_pod.resources_of(resources, REQUESTS),
        storage=claim_template(situation.observed, metadata["name"], server.storage),
        running=situation.server_wanted or situation.keeps_results,
        keep_claim=spec.deletion_policy == "Retain",
        ports={"silos": names.SILOS_PORT, "enrolment": names.ENROLMENT_PORT, "control": names.CONTROL_PORT},
        mounts=[build_pod.secret_mount("tls", names.TLS_FOLDER, tls)],
        claims=permitted_claims(federation_claims(spec).values(), situation.observed, settings),
        secret_env=dict.fromkeys((USER, PASSWORD, TOKEN), secret) if secret else {},
        asked=build_pod.hash_spec(spec, situation.server_wanted, situation.results_only),
        grace_seconds=60,
        queue=None if situation.results_only else spec.queue_name,  # results are at hand without a device
    )
    return build_pod.stateful_set(parts, settings)


def _port(name: str, number: int, target: str = "") -> dict[str, Any]:
    return {"name": name, "port": number, "targetPort": target or name, "protocol": "TCP"}


_PUBLIC_PORTS = [_port("silos", names.SILOS_PORT), _port("enrolment", names.ENROLMENT_PORT)]
_INSIDE_PORTS = [*_PUBLIC_PORTS, _port("control", names.CONTROL_PORT), _port("metrics", names.PROBES_PORT, "probes")]

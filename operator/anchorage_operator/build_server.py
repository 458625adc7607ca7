"""The objects of a federation's server. Pure: from documents to Kubernetes objects."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anchorage.api.base import API_VERSION
from anchorage.api.federation import FederationSpec
from anchorage.api.pod import Resources
from anchorage.transport.kube.resources import Json
from anchorage_operator.build_network import server_network_policy
from anchorage_operator.build_pod import (
    PodParts,
    claim_template,
    merge_overrides,
    pod_template,
    resources_of,
    secret_mount,
    stateful_set,
)
from anchorage_operator.drift import digest
from anchorage_operator.names import (
    CONFIG_FOLDER,
    CONTROL_PORT,
    DATA_FOLDER,
    ENROLMENT_PORT,
    PROBES_PORT,
    SILOS_PORT,
    STATE_FOLDER,
    TLS_FOLDER,
    authority_name,
    owner_reference,
    public_name,
    selector,
    server_labels,
    server_name,
    server_tls_name,
)
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.yaml_text import as_yaml

REQUESTS = {"cpu": "100m", "memory": "512Mi"}
"""Requests of a server that trains, where the spec says nothing."""
RESULTS_REQUESTS = {"cpu": "20m", "memory": "128Mi"}
"""Requests of a server that only keeps the results at hand."""
CLUSTER_ONLY = ("suspend", "deletionPolicy", "admission", "server")
"""Fields of the spec that the server does not see, so that a change of them does not restart it."""
FEDERATION_FILE = "federation.yaml"


@dataclass(frozen=True, slots=True)
class ServerParts:
    """Inputs for the server's objects."""

    federation: Json
    """The Federation object."""
    spec: FederationSpec
    """Its spec, typed."""
    running: bool
    """Whether the pod is wanted."""
    results_only: bool
    """Whether training is over: the pod then needs neither GPU nor much memory."""
    authority: str
    """The authority's certificate, PEM."""

    @property
    def name(self) -> str:
        """Name of the federation."""
        return str(self.federation["metadata"]["name"])

    def metadata(self, name: str | None = None) -> dict[str, Any]:
        """Return the metadata of a child."""
        return {
            "name": name or server_name(self.name),
            "namespace": self.federation["metadata"]["namespace"],
            "labels": server_labels(self.name),
            "ownerReferences": [owner_reference(self.federation)],
        }


def server_objects(parts: ServerParts, settings: OperatorSettings, *, with_pod: bool) -> Iterator[dict[str, Any]]:
    """Yield the server's objects in the order in which they must be created.

    Parameters
    ----------
    parts : ServerParts
        What to build from.
    settings : OperatorSettings
        Defaults.
    with_pod : bool
        Whether the Secret that the pod mounts is there; a pod made before would wait for minutes.
    """
    tracking = parts.spec.tracking.uri or settings.tracking_uri
    match = selector(server_labels(parts.name))
    config = config_map(parts, tracking)
    yield authority_config_map(parts)
    yield config
    yield service_account(parts.metadata())
    yield service(parts, match)
    if parts.spec.server.service.type != "ClusterIP":
        yield public_service(parts, match)
    yield server_network_policy(parts.metadata(), match, tracking)
    if parts.running and not parts.results_only:
        yield disruption_budget(parts.metadata(), match)
    if with_pod:
        yield _stateful_set(parts, settings, match, digest(config["data"]))


def config_map(parts: ServerParts, tracking: str | None) -> dict[str, Any]:
    """Build the ConfigMap with the server's configuration and the federation's document, without silos, which may change while it runs."""
    server = {
        "federation": f"{CONFIG_FOLDER}/{FEDERATION_FILE}",
        "state": STATE_FOLDER,
        "dataRoot": DATA_FOLDER,
        "listen": f"0.0.0.0:{SILOS_PORT}",
        "enrolListen": f"0.0.0.0:{ENROLMENT_PORT}",
        "controlListen": f"0.0.0.0:{CONTROL_PORT}",
        "statusListen": f"0.0.0.0:{PROBES_PORT}",
        "tls": TLS_FOLDER,
        "stay": True,
    }
    spec = {key: value for key, value in parts.federation["spec"].items() if key not in CLUSTER_ONLY}
    if tracking is not None:
        spec["tracking"] = {**spec.get("tracking", {}), "uri": tracking}
    document = {"apiVersion": API_VERSION, "kind": "Federation", "metadata": {"name": parts.name}, "spec": spec}
    data = {"server.yaml": as_yaml(server), FEDERATION_FILE: as_yaml(document)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": parts.metadata(), "data": data}


def authority_config_map(parts: ServerParts) -> dict[str, Any]:
    """Build the ConfigMap with the certificate authority's certificate, for agents and invitations."""
    metadata = parts.metadata(authority_name(parts.name))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.pem": parts.authority}}


def service_account(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Build a service account without permissions and without a token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata,
        "automountServiceAccountToken": False,
    }


def service(parts: ServerParts, match: Mapping[str, str]) -> dict[str, Any]:
    """Build the cluster-internal Service; it includes the pod before it is ready, so that the operator can ask what it is waiting for."""
    ports = [_port("silos", SILOS_PORT), _port("enrolment", ENROLMENT_PORT), _port("control", CONTROL_PORT)]
    ports.append({"name": "metrics", "port": PROBES_PORT, "targetPort": "probes", "protocol": "TCP"})
    asked = parts.spec.server.service
    annotations = asked.annotations if asked.type == "ClusterIP" else {}
    return _service(parts.metadata(), annotations, "ClusterIP", match, ports)


def public_service(parts: ServerParts, match: Mapping[str, str]) -> dict[str, Any]:
    """Build the external Service for hospitals, with the ports for silos and enrolment only."""
    asked = parts.spec.server.service
    numbers = (asked.node_ports.silos, asked.node_ports.enrolment) if asked.node_ports is not None else (None, None)
    ports = [_port("silos", SILOS_PORT), _port("enrolment", ENROLMENT_PORT)]
    for port, number in zip(ports, numbers, strict=True):
        if number is not None:
            port["nodePort"] = number
    return _service(parts.metadata(public_name(parts.name)), asked.annotations, asked.type, match, ports)


def disruption_budget(metadata: Mapping[str, Any], match: Mapping[str, str]) -> dict[str, Any]:
    """Build the PodDisruptionBudget that keeps a drain from interrupting an open round; a pod that is not ready does not block it.

    It exists only while training runs; ``suspend: true`` takes it away and stops after the last committed round.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {
            "minAvailable": 1,
            "selector": {"matchLabels": dict(match)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def claims_of(spec: FederationSpec) -> set[str]:
    """Return the names of the volume claims that the server mounts: anchors, test images, initial weights."""
    sections = [spec.anchor_data, spec.evaluation.data if spec.evaluation else None]
    claims = {section.claim_name for section in sections if section is not None and section.claim_name is not None}
    if spec.model.initial is not None:
        claims.add(spec.model.initial.split("/", 1)[0])
    return claims


def _stateful_set(
    parts: ServerParts, settings: OperatorSettings, match: Mapping[str, str], config_hash: str
) -> dict[str, Any]:
    server = parts.spec.server
    resources = resources_of(server.resources, REQUESTS)
    if parts.results_only:
        resources = resources_of(Resources(), RESULTS_REQUESTS)
    template = pod_template(
        PodParts(
            container="server",
            module="anchorage_server",
            config="server.yaml",
            config_map=server_name(parts.name),
            config_hash=config_hash,
            image=settings.images.server,
            service_account=server_name(parts.name),
            labels=server_labels(parts.name),
            resources=resources,
            ports={"silos": SILOS_PORT, "enrolment": ENROLMENT_PORT, "control": CONTROL_PORT},
            mounts=[secret_mount("tls", TLS_FOLDER, server_tls_name(parts.name), ("tls.key", "tls.crt", "ca.pem"))],
            claims=claims_of(parts.spec),
            grace_seconds=60,
        ),
        merge_overrides(server.pod, settings.server),
        settings,
    )
    return stateful_set(
        parts.metadata(),
        running=parts.running,
        match=match,
        template=template,
        claim=claim_template(server.storage.size, server.storage.class_name),
        keep_claim=parts.spec.deletion_policy == "Retain",
    )


def _service(
    metadata: dict[str, Any],
    annotations: Mapping[str, str],
    kind: str,
    match: Mapping[str, str],
    ports: list[dict[str, Any]],
) -> dict[str, Any]:
    if annotations:
        metadata["annotations"] = dict(annotations)
    spec = {"type": kind, "selector": dict(match), "ports": ports, "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}

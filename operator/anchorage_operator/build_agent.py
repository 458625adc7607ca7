"""The objects of a managed silo's agent. Pure: from documents to Kubernetes objects."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anchorage.api.federation import Managed, SiloSpec
from anchorage.transport.kube.resources import Json
from anchorage_operator.build_network import agent_network_policy
from anchorage_operator.build_pod import (
    PodParts,
    claim_template,
    config_mount,
    merge_overrides,
    pod_template,
    resources_of,
    secret_mount,
    stateful_set,
)
from anchorage_operator.build_server import service_account
from anchorage_operator.drift import digest
from anchorage_operator.names import (
    AUTHORITY_FOLDER,
    AUTHORITY_HASH,
    DATA_FOLDER,
    ENROLMENT_PORT,
    PROBES_PORT,
    SILOS_PORT,
    STATE_FOLDER,
    TOKEN_FOLDER,
    agent_labels,
    agent_name,
    authority_name,
    enrolment_name,
    owner_reference,
    selector,
    server_name,
)
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.yaml_text import as_yaml

REQUESTS = {"cpu": "100m", "memory": "512Mi"}
"""Requests of an agent where the spec says nothing."""
AGENT_FILE = "silo.yaml"


@dataclass(frozen=True, slots=True)
class AgentParts:
    """Inputs for an agent's objects."""

    silo: Json
    """The Silo object."""
    spec: SiloSpec
    """Its spec, typed."""
    managed: Managed
    """Its part about the agent."""
    running: bool
    """Whether the pod is wanted."""
    authority_hash: str
    """Hash of the authority's certificate."""

    @property
    def name(self) -> str:
        """Name of the silo."""
        return str(self.silo["metadata"]["name"])

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the objects."""
        return agent_labels(self.spec.federation, self.name)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of a child."""
        return {
            "name": agent_name(self.name),
            "namespace": self.silo["metadata"]["namespace"],
            "labels": self.labels,
            "ownerReferences": [owner_reference(self.silo)],
        }


def agent_objects(parts: AgentParts, settings: OperatorSettings, *, with_pod: bool) -> Iterator[dict[str, Any]]:
    """Yield the agent's objects in the order in which they must be created.

    Parameters
    ----------
    parts : AgentParts
        What to build from.
    settings : OperatorSettings
        Defaults.
    with_pod : bool
        Whether the Secret that the pod mounts is there.
    """
    config = agent_config_map(parts, settings)
    yield config
    yield service_account(parts.metadata())
    yield agent_network_policy(parts.metadata(), selector(parts.labels), parts.spec.federation)
    if with_pod:
        yield _stateful_set(parts, settings, digest(config["data"]))


def agent_config_map(parts: AgentParts, settings: OperatorSettings) -> dict[str, Any]:
    """Build the agent's configuration."""
    host = f"{server_name(parts.spec.federation)}.{parts.silo['metadata']['namespace']}.svc.{settings.cluster_domain}"
    silo: dict[str, Any] = {
        "silo": parts.name,
        "federation": parts.spec.federation,
        "server": f"{host}:{SILOS_PORT}",
        "enrolment": f"{host}:{ENROLMENT_PORT}",
        "authority": f"{AUTHORITY_FOLDER}/ca.pem",
        "token": f"{TOKEN_FOLDER}/token",
        "state": STATE_FOLDER,
        "labels": parts.spec.labels,
        "data": parts.silo["spec"]["managed"]["data"],
        "dataRoot": DATA_FOLDER,
        "probesListen": f"0.0.0.0:{PROBES_PORT}",
        "stay": True,
        "patienceSeconds": 0,
    }
    if parts.managed.policy is not None:
        silo["policy"] = f"{DATA_FOLDER}/{parts.managed.policy}"
    data = {AGENT_FILE: as_yaml(silo)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": parts.metadata(), "data": data}


def agent_claims(managed: Managed) -> set[str]:
    """Return the names of the volume claims that the agent mounts: images and policy."""
    claims = {managed.data.claim_name} if managed.data.claim_name is not None else set()
    if managed.policy is not None and "/" in managed.policy:
        claims.add(managed.policy.split("/", 1)[0])
    return claims


def _stateful_set(parts: AgentParts, settings: OperatorSettings, config_hash: str) -> dict[str, Any]:
    name, managed = agent_name(parts.name), parts.managed
    template = pod_template(
        PodParts(
            container="agent",
            module="anchorage_silo",
            config=AGENT_FILE,
            config_map=name,
            config_hash=config_hash,
            image=settings.images.agent,
            service_account=name,
            labels=parts.labels,
            resources=resources_of(managed.resources, REQUESTS),
            mounts=[
                secret_mount("enrolment", TOKEN_FOLDER, enrolment_name(parts.name), ("token",)),
                config_mount("authority", AUTHORITY_FOLDER, authority_name(parts.spec.federation)),
            ],
            claims=agent_claims(managed),
        ),
        merge_overrides(managed.pod, settings.agent),
        settings,
    )
    metadata: Mapping[str, Any] = {
        **parts.metadata(),
        "annotations": {AUTHORITY_HASH: parts.authority_hash},
    }
    return stateful_set(
        metadata,
        running=parts.running,
        match=selector(parts.labels),
        template=template,
        claim=claim_template(managed.storage.size, managed.storage.class_name),
        keep_claim=False,
    )

"""The objects of a managed silo's agent. Pure: from documents to Kubernetes objects."""

from collections.abc import Iterator
from typing import Any

from anchorage.api.federation import Managed, Silo
from anchorage_operator.build_network import agent_network_policy
from anchorage_operator.build_pod import (
    PodParts,
    config_mount,
    kube_object,
    merge_overrides,
    resources_of,
    secret_mount,
    stateful_set,
)
from anchorage_operator.build_server import service_account
from anchorage_operator.drift import digest
from anchorage_operator.names import (
    AGENT_FILE,
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
    child_metadata,
    enrolment_name,
    server_name,
)
from anchorage_operator.situation import Situation
from anchorage_operator.yaml_text import as_yaml

REQUESTS = {"cpu": "100m", "memory": "512Mi"}
"""Requests of an agent where the spec says nothing."""


def agent_objects(
    situation: Situation, silo: Silo, managed: Managed, authority_hash: str, *, with_pod: bool
) -> Iterator[dict[str, Any]]:
    """Yield the agent's objects in the order in which they must be created.

    Parameters
    ----------
    situation : Situation
        The federation.
    silo : Silo
        The accepted silo.
    managed : Managed
        Its part about the agent.
    authority_hash : str
        Hash of the authority's certificate.
    with_pod : bool
        Whether the Secret that the pod mounts is there.
    """
    name, federation, owner = silo.metadata.name, silo.spec.federation, situation.silos[silo.metadata.name]
    metadata = child_metadata(owner, agent_name(name), agent_labels(federation, name))
    config = {AGENT_FILE: as_yaml(_configuration(situation, silo, managed))}
    yield kube_object("ConfigMap", metadata, data=config)
    yield service_account(metadata)
    yield agent_network_policy(metadata, federation)
    if with_pod:
        settings = situation.settings
        parts = PodParts(
            {**metadata, "annotations": {AUTHORITY_HASH: authority_hash}},
            container="agent",
            module="anchorage_silo",
            config=AGENT_FILE,
            config_hash=digest(config),
            image=settings.images.agent,
            overrides=merge_overrides(managed.pod, settings.agent),
            resources=resources_of(managed.resources, REQUESTS),
            storage=managed.storage,
            running=situation.agents_wanted,
            keep_claim=False,
            mounts=[
                secret_mount("enrolment", TOKEN_FOLDER, enrolment_name(name), ("token",)),
                config_mount("authority", AUTHORITY_FOLDER, authority_name(federation)),
            ],
            claims=_claims_of(managed),
        )
        yield stateful_set(parts, settings)


def _configuration(situation: Situation, silo: Silo, managed: Managed) -> dict[str, Any]:
    name, federation, namespace = silo.metadata.name, silo.spec.federation, situation.observed.namespace
    host = f"{server_name(federation)}.{namespace}.svc.{situation.settings.cluster_domain}"
    return {
        "silo": name,
        "federation": federation,
        "server": f"{host}:{SILOS_PORT}",
        "enrolment": f"{host}:{ENROLMENT_PORT}",
        "authority": f"{AUTHORITY_FOLDER}/ca.pem",
        "token": f"{TOKEN_FOLDER}/token",
        "state": STATE_FOLDER,
        "labels": silo.spec.labels,
        "data": situation.silos[name]["spec"]["managed"]["data"],
        "dataRoot": DATA_FOLDER,
        "probesListen": f"0.0.0.0:{PROBES_PORT}",
        "stay": True,
        "patienceSeconds": 0,
        **({"policy": f"{DATA_FOLDER}/{managed.policy}"} if managed.policy is not None else {}),
    }


def _claims_of(managed: Managed) -> set[str]:
    """Return the names of the volume claims that the agent mounts: images and policy."""
    claims = {managed.data.claim_name} if managed.data.claim_name is not None else set()
    if managed.policy is not None and "/" in managed.policy:
        claims.add(managed.policy.split("/", 1)[0])
    return claims

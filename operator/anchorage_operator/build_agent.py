"""The objects of a managed silo's agent. Pure: from documents to Kubernetes objects."""

from collections.abc import Iterator
from typing import Any

from anchorage.api.federation import TRUSTING_POLICY, Managed, Silo
from anchorage.api.pod import PodOverrides, Resources
from anchorage.transport.kube.resources import kube_object
from anchorage_operator import build_pod, names
from anchorage_operator.build_network import agent_network_policy
from anchorage_operator.build_server import service_account
from anchorage_operator.drift import digest
from anchorage_operator.in_use import InUse, accepted_spec
from anchorage_operator.pod_policy import managed_claims, permitted_claims, permitted_pod
from anchorage_operator.situation import Situation
from anchorage_operator.volumes import claim_template
from anchorage_operator.yaml_text import as_yaml

REQUESTS = {"cpu": "100m", "memory": "512Mi"}
"""Requests of an agent where the spec says nothing."""
GPU = "nvidia.com/gpu"
"""What each of several devices is where the spec names none."""


def agent_objects(
    situation: Situation, in_use: InUse[Silo], managed: Managed, authority_hash: str, *, with_pod: bool
) -> Iterator[dict[str, Any]]:
    """Yield the agent's objects in the order in which they must be created.

    Parameters
    ----------
    situation : Situation
        The federation.
    in_use : InUse
        The Silo with the spec in use.
    managed : Managed
        Its part about the agent.
    authority_hash : str
        Hash of the authority's certificate.
    with_pod : bool
        Whether the Secret that the pod mounts is there.
    """
    silo, owner = in_use.typed, in_use.object
    name, federation = silo.metadata.name, silo.spec.federation
    metadata = names.child_metadata(owner, names.agent_name(name), names.agent_labels(federation, name))
    config = {names.AGENT_FILE: as_yaml(_configuration(situation, in_use, managed))}
    if managed.policy is None:
        config[names.POLICY_FILE] = as_yaml(TRUSTING_POLICY)
    yield kube_object("ConfigMap", {**metadata, "annotations": accepted_spec(owner["spec"])}, data=config)
    yield service_account(metadata)
    yield agent_network_policy(metadata, federation, situation.settings.dns_cidrs)
    if with_pod:
        settings, queue = situation.settings, situation.spec.queue_name if situation.spec is not None else None
        pod = permitted_pod(managed.pod, situation.observed, settings)
        asked = settings.pod_overrides.permitted_resources(managed.resources)
        parts = build_pod.PodParts(
            {**metadata, "annotations": {names.AUTHORITY_HASH: authority_hash}},
            container="agent",
            module="anchorage_silo",
            config=names.AGENT_FILE,
            config_hash=digest(config),
            image=settings.images.agent,
            overrides=build_pod.merge_overrides(pod, settings.agent),
            resources=build_pod.resources_of(_with_devices(managed.devices, asked, pod), REQUESTS),
            storage=claim_template(situation.observed, metadata["name"], managed.storage),
            running=situation.agents_wanted,
            keep_claim=False,
            mounts=[
                build_pod.secret_mount("enrolment", names.TOKEN_FOLDER, names.enrolment_name(name), "token"),
                build_pod.config_mount("authority", names.AUTHORITY_FOLDER, names.authority_name(federation)),
            ],
            claims=permitted_claims(managed_claims(managed).values(), situation.observed, settings),
            asked=build_pod.hash_spec(silo.spec, situation.agents_wanted, authority_hash, queue),
            queue=queue,
        )
        yield build_pod.stateful_set(parts, settings)


def _configuration(situation: Situation, in_use: InUse[Silo], managed: Managed) -> dict[str, Any]:
    silo = in_use.typed
    name, federation, namespace = silo.metadata.name, silo.spec.federation, situation.observed.namespace
    policy_path = f"{names.DATA_FOLDER}/{managed.policy}" if managed.policy is not None else None
    host = f"{names.server_name(federation)}.{namespace}.svc.{situation.settings.cluster_domain}"
    return {
        "silo": name,
        "federation": federation,
        "server": f"{host}:{names.SILOS_PORT}",
        "enrolment": f"{host}:{names.ENROLMENT_PORT}",
        "authority": f"{names.AUTHORITY_FOLDER}/ca.pem",
        "token": f"{names.TOKEN_FOLDER}/token",
        "state": names.STATE_FOLDER,
        "labels": silo.spec.labels,
        "data": in_use.object["spec"]["managed"]["data"],
        "dataRoot": names.DATA_FOLDER,
        "probesListen": f"[::]:{names.PROBES_PORT}",
        "stay": True,
        "patienceSeconds": 0,
        **managed.changed_options(),
        "policy": policy_path or f"{names.CONFIG_FOLDER}/{names.POLICY_FILE}",
    }


def _with_devices(devices: int, asked: Resources, pod: PodOverrides) -> Resources:
    """Return the pod's resources, with a GPU for each of several devices unless a device is named or claimed."""
    named = any("/" in name for name in (*asked.requests, *asked.limits))
    if devices == 1 or named or pod.resource_claims:
        return asked
    return Resources(requests=asked.requests, limits={**asked.limits, GPU: devices})

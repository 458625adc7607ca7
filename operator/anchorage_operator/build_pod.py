"""Parts of all pods that the operator creates: security context, probes, volumes, and users' overrides."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anchorage.api.base import Document
from anchorage.api.pod import Amount, EnvironmentVariable, PodOverrides, Resources
from anchorage.transport.kube.resources import Json, kube_object
from anchorage_operator.drift import digest
from anchorage_operator.names import (
    ASKED_HASH,
    CONFIG_FOLDER,
    CONFIG_HASH,
    DATA_FOLDER,
    PROBES_PORT,
    QUEUE_LABEL,
    STATE_FOLDER,
    STATE_VOLUME,
    selector,
)
from anchorage_operator.settings import OperatorSettings

SECRET_MODE = 0o440
"""Mode of files from Secrets: for the pod's group, which is the process's."""
START_SECONDS = 600
"""How long a process may take until it answers its probes: a first import of torch from a cold volume takes minutes."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A Secret or ConfigMap in the pod."""

    volume: str
    folder: str
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodParts:
    """What a StatefulSet with one pod is made of; ServiceAccount and ConfigMap have its name."""

    metadata: Json
    """Of the StatefulSet; its labels are the pod's, too."""
    container: str
    """Name of the container, ``server`` or ``agent``."""
    module: str
    """Python module that the container runs."""
    config: str
    """File of the ConfigMap that the module is given."""
    config_hash: str
    """Hash of the ConfigMap's data; another one restarts the pod."""
    image: str
    """Image where no override names one."""
    overrides: PodOverrides
    """As `merge_overrides` returns them."""
    resources: Mapping[str, Any]
    """As `resources_of` returns them."""
    storage: tuple[str, str | None]
    """Size and class of its volume."""
    running: bool
    """Whether the pod is wanted."""
    keep_claim: bool
    """Whether the volume outlives the StatefulSet."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports by name, beside that of the probes."""
    mounts: Sequence[Mount] = ()
    """Beside the ConfigMap, the state and /tmp."""
    claims: Iterable[str] = ()
    """Volume claims with images, read-only below `DATA_FOLDER`."""
    secret_env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables from Secrets, by name; each is the Secret's key of that name, if it has one."""
    asked: str = ""
    """Hash of what the documents ask; another one replaces the pod at once, what else is new waits for the end of a round."""
    grace_seconds: int = 30
    """How long the process has to end."""
    queue: str | None = None
    """Kueue's queue that the pod waits in."""


def stateful_set(parts: PodParts, settings: OperatorSettings) -> dict[str, Any]:
    """Build a StatefulSet with one pod and its own volume.

    Pods are managed in parallel, as otherwise a pod that never becomes ready is not replaced when its template is mended.

    Parameters
    ----------
    parts : PodParts
        What this pod is.
    settings : OperatorSettings
        Image pull policy and secrets where the overrides say nothing.
    """
    metadata, (size, class_name) = parts.metadata, parts.storage
    claim: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if class_name is not None:
        claim["storageClassName"] = class_name
    labels = {**parts.overrides.labels, **metadata["labels"], **({QUEUE_LABEL: parts.queue} if parts.queue else {})}
    annotations = {**parts.overrides.annotations, CONFIG_HASH: parts.config_hash}
    retention_policy = {"whenDeleted": "Retain" if parts.keep_claim else "Delete", "whenScaled": "Retain"}
    spec = {
        "replicas": 1 if parts.running else 0,
        "serviceName": metadata["name"],
        "podManagementPolicy": "Parallel",
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": selector(metadata["labels"])},
        "updateStrategy": {"type": "RollingUpdate"},
        "persistentVolumeClaimRetentionPolicy": retention_policy,
        "template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": _pod_spec(parts, settings),
        },
        "volumeClaimTemplates": [kube_object("PersistentVolumeClaim", {"name": STATE_VOLUME}, spec=claim)],
    }
    noted = {**metadata.get("annotations", {}), ASKED_HASH: parts.asked}
    return kube_object("StatefulSet", {**metadata, "annotations": noted}, spec=spec)


def _pod_spec(parts: PodParts, settings: OperatorSettings) -> dict[str, Any]:
    """Build a pod's spec that meets the restricted Pod Security Standard."""
    overrides = parts.overrides
    volumes, mounts = _volumes(parts)
    user = settings.user_id
    ids = {"runAsUser": user, "runAsGroup": user, "fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"}
    chosen = {
        "imagePullSecrets": [{"name": n} for n in overrides.image_pull_secrets or settings.image_pull_secrets],
        "nodeSelector": overrides.node_selector,
        "affinity": overrides.affinity,
        "topologySpreadConstraints": list(overrides.topology_spread_constraints),
        "tolerations": _plain(overrides.tolerations),
        "resourceClaims": _plain(overrides.resource_claims),
        "schedulerName": overrides.scheduler_name,
        "runtimeClassName": overrides.runtime_class_name,
        "priorityClassName": overrides.priority_class_name,
    }
    return {
        "serviceAccountName": parts.metadata["name"],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": parts.grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            **(ids if user else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(parts, settings, mounts)],
        "volumes": volumes,
        **{name: value for name, value in chosen.items() if value},
    }


def hash_spec(spec: Document, *more: object) -> str:
    """Return the hash of a spec and more that a pod depends on; without defaults, which newer versions and definitions add."""
    return digest([spec.model_dump(mode="json", exclude_defaults=True, exclude={"admission"}), *more])


def merge_overrides(overrides: PodOverrides, defaults: PodOverrides) -> PodOverrides:
    """Merge a spec's overrides into the operator's defaults: mappings by key, lists by item, other values replaced."""
    values = {name: getattr(overrides, name) or getattr(defaults, name) for name in PodOverrides.model_fields}
    for name in ("labels", "annotations", "node_selector"):
        values[name] = getattr(defaults, name) | getattr(overrides, name)
    values["tolerations"] = (
        *defaults.tolerations,
        *(t for t in overrides.tolerations if t not in defaults.tolerations),
    )
    values["env"] = tuple(({v.name: v for v in defaults.env} | {v.name: v for v in overrides.env}).values())
    values["volumes"] = tuple(
        ({v.mount_path: v for v in defaults.volumes} | {v.mount_path: v for v in overrides.volumes}).values()
    )
    return PodOverrides(**values)


def resources_of(asked: Resources, requests: Mapping[str, Amount]) -> dict[str, Any]:
    """Return the resources of a container, with default requests for resources that are not specified.

    Parameters
    ----------
    asked : Resources
        Of the spec.
    requests : mapping
        Requests of resources that the spec names neither in requests nor in limits.
    """
    named = asked.requests.keys() | asked.limits.keys()
    rest = {name: value for name, value in requests.items() if name not in named}
    resources: dict[str, Any] = {"requests": _amounts(rest | asked.requests)}
    if asked.limits:
        resources["limits"] = _amounts(asked.limits)
    return resources


def secret_mount(name: str, folder: str, secret: str, *keys: str) -> Mount:
    """Mount the named keys of a Secret, or, where none is named, all that it has and comes to have."""
    items = [{"key": key, "path": key} for key in keys]
    chosen = {"items": items} if items else {}
    return Mount(name, folder, {"secret": {"secretName": secret, "defaultMode": SECRET_MODE, **chosen}})


def config_mount(name: str, folder: str, config_map: str) -> Mount:
    """Mount a ConfigMap."""
    return Mount(name, folder, {"configMap": {"name": config_map}})


def _container(parts: PodParts, settings: OperatorSettings, mounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ports, overrides = {**parts.ports, "probes": PROBES_PORT}, parts.overrides
    # libraries that need a home get a writable one
    environment = {"HOME": {"name": "HOME", "value": "/tmp"}} | {each.name: _variable(each) for each in overrides.env}
    claims = [{"name": claim.name} for claim in overrides.resource_claims]
    secrets = [_from_secret(name, secret) for name, secret in parts.secret_env.items() if name not in environment]
    return {
        "name": parts.container,
        "image": overrides.image or parts.image,
        "imagePullPolicy": overrides.image_pull_policy or settings.image_pull_policy,
        "command": ["python3", "-m", parts.module],
        "args": ["--config", f"{CONFIG_FOLDER}/{parts.config}"],
        "env": [*environment.values(), *secrets],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "resources": {**parts.resources, **({"claims": claims} if claims else {})},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "startupProbe": _probe("/healthz", every=2, misses=START_SECONDS // 2),
        "livenessProbe": _probe("/healthz", every=10, misses=6),
        "readinessProbe": _probe("/readyz", every=3, misses=3),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _variable(variable: EnvironmentVariable) -> dict[str, Any]:
    if variable.value_from is None:
        return {"name": variable.name, "value": variable.value}
    return {"name": variable.name, "valueFrom": variable.value_from.model_dump(by_alias=True, exclude_defaults=True)}


def _plain(items: Iterable[Document]) -> list[dict[str, Any]]:
    return [each.model_dump(by_alias=True, exclude_none=True) for each in items]


def _from_secret(name: str, secret: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name, "optional": True}}}


def _probe(path: str, *, every: int, misses: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "probes", "scheme": "HTTP"},
        "periodSeconds": every,
        "timeoutSeconds": 5,
        "failureThreshold": misses,
    }


def _volumes(parts: PodParts) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the pod's volumes and the container's mounts; a claim mounted read-only and writable becomes two volumes."""
    extra, config = parts.overrides.volumes, config_mount("config", CONFIG_FOLDER, parts.metadata["name"])
    fixed = [config, Mount("tmp", "/tmp", {"emptyDir": {}}), *parts.mounts]
    if parts.overrides.shared_memory is not None:
        memory = {"medium": "Memory", "sizeLimit": parts.overrides.shared_memory}
        fixed.append(Mount("shm", "/dev/shm", {"emptyDir": memory}))
    volumes: list[dict[str, Any]] = [{"name": mount.volume, **mount.source} for mount in fixed]
    mounts: list[dict[str, Any]] = [{"name": STATE_VOLUME, "mountPath": STATE_FOLDER}]
    for mount in fixed:
        mounts.append(
            {"name": mount.volume, "mountPath": mount.folder} | ({} if "emptyDir" in mount.source else _READ_ONLY)
        )
    mounted_folders = {mount.mount_path for mount in extra}
    data = {claim: f"{DATA_FOLDER}/{claim}" for claim in sorted(parts.claims)}
    wanted = [(claim, folder, True) for claim, folder in data.items() if folder not in mounted_folders]
    wanted += [(mount.claim_name, mount.mount_path, mount.read_only) for mount in extra]
    uses = list(dict.fromkeys((claim, read_only) for claim, _, read_only in wanted))
    for number, (claim, read_only) in enumerate(uses):
        source = {"claimName": claim} | (_READ_ONLY if read_only else {})
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": source})
    for claim, folder, read_only in wanted:
        name = f"claim-{uses.index((claim, read_only))}"
        mounts.append({"name": name, "mountPath": folder} | (_READ_ONLY if read_only else {}))
    return volumes, mounts


_READ_ONLY = {"readOnly": True}


def _amounts(values: Mapping[str, Amount]) -> dict[str, str]:
    """Convert quantities to strings, as the API server returns them."""
    return {name: str(value) for name, value in values.items()}

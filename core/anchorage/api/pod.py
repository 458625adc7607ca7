"""Overrides of generated pods: the few fields that a federation's author may set; the operator sets the rest."""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from anchorage.api.base import (
    ENV_NAME_PATTERN,
    IMAGE_PATTERN,
    LABEL_KEY_PATTERN,
    LABEL_VALUE_PATTERN,
    MOUNT_PATH_PATTERN,
    QUANTITY_PATTERN,
    RESOURCE_PATTERN,
    SECRET_KEY_PATTERN,
    SUBDOMAIN_PATTERN,
    Document,
    Name,
)

ResourceName = Annotated[str, StringConstraints(strict=True, pattern=RESOURCE_PATTERN, max_length=253)]
Quantity = Annotated[str, StringConstraints(strict=True, pattern=QUANTITY_PATTERN, max_length=32)]
Amount = Quantity | Annotated[int, Field(ge=0, le=2**53)]
ObjectName = Annotated[str, StringConstraints(strict=True, pattern=SUBDOMAIN_PATTERN, min_length=1, max_length=253)]
"""A DNS subdomain, the form of most names in Kubernetes."""

LabelKey = Annotated[str, StringConstraints(strict=True, pattern=LABEL_KEY_PATTERN, min_length=1, max_length=317)]
LabelValue = Annotated[str, StringConstraints(strict=True, pattern=LABEL_VALUE_PATTERN, max_length=63)]
Image = Annotated[str, StringConstraints(strict=True, pattern=IMAGE_PATTERN, min_length=1, max_length=512)]
EnvName = Annotated[str, StringConstraints(strict=True, pattern=ENV_NAME_PATTERN, min_length=1, max_length=253)]

RESERVED_PATHS = (
    "/data",
    "/dev/shm",
    "/etc/anchorage",
    "/etc/anchorage-authority",
    "/etc/anchorage-enrolment",
    "/etc/anchorage-tls",
    "/tmp",
    "/var/lib/anchorage",
)
"""Folders that the operator mounts into pods."""
RESERVED_KEYS = (
    "anchorage.dev/",
    "app.kubernetes.io/",
    "container.apparmor.security.beta.kubernetes.io/",
    "kueue.x-k8s.io/queue-name",
    "statefulset.kubernetes.io/",
)
"""Beginnings of labels and annotations by which pods are found, protected and queued."""
RESERVED_SECRETS = ("-authority", "-enrolment", "-server-tls", "-tracking-login")
"""Ends of the names of Secrets that hold keys of a federation."""
MOST_JSON = 16_384
"""Characters of a part that the API server checks."""


def _is_free(path: str) -> str:
    if path.rstrip("/") in RESERVED_PATHS:
        raise ValueError(f'found "{path}", a folder that the operator mounts itself; choose another one')
    return path


MountPath = Annotated[
    str,
    StringConstraints(strict=True, pattern=MOUNT_PATH_PATTERN, min_length=2, max_length=512),
    AfterValidator(_is_free),
]


def _is_short(value: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(value)) > MOST_JSON:
        raise ValueError(f"found more than {MOST_JSON} characters; write less")
    return value


def _are_free(pairs: dict[str, str]) -> dict[str, str]:
    for key in pairs:
        if key.startswith(RESERVED_KEYS):
            raise ValueError(f'found "{key}", which is not for overrides; remove it')
    return pairs


KubernetesPart = Annotated[dict[str, Any], Field(max_length=16), AfterValidator(_is_short)]
"""A part of a pod in Kubernetes' own form, which the API server checks."""


class Resources(Document):
    """Compute resources of a pod."""

    requests: Annotated[dict[ResourceName, Amount], Field(max_length=16)] = Field(
        {}, description="Reserved amount of each resource, such as cpu: 2 and memory: 8Gi."
    )
    limits: Annotated[dict[ResourceName, Amount], Field(max_length=16)] = Field(
        {},
        description="Maximum amount of each resource that the pod may use, GPUs included, such as nvidia.com/gpu: 1; the memory limit also "
        "decides how many decoded images are kept in memory.",
    )


class Storage(Document):
    """Volume of the server. Ignored outside a cluster."""

    size: Quantity = Field(
        "20Gi",
        description="Size of the volume, which holds checkpoints and arriving updates. Raise it for large networks and many silos.",
    )
    class_name: ObjectName | None = Field(
        None, description="Storage class of the volume. Absent: the cluster's default class."
    )


class SiloStorage(Storage):
    """Volume of a managed agent. Ignored outside a cluster."""

    size: Quantity = Field(
        "5Gi",
        description="Size of the volume, which holds the agent's identity, audit log, models and decoded images. Raise it where the images "
        "do not fit into memory.",
    )


class Toleration(Document):
    """Toleration of a node taint."""

    key: LabelKey | None = Field(
        None, description="Key of the taint. Absent: every taint, which needs the operator Exists."
    )
    operator: Literal["Exists", "Equal"] = Field(
        "Equal", description="Whether the taint's value must be equal to `value` (Equal) or may be any (Exists)."
    )
    value: LabelValue | None = Field(None, description="Value of the taint, for the operator Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Effect of the taint. Absent: every effect."
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=2**31)] | None = Field(
        None, description="Seconds that the pod stays on a node with a NoExecute taint. Absent: for ever."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise ValueError("found no key, which tolerates every taint; set operator: Exists, or a key")
        if self.value is not None and self.operator == "Exists":
            raise ValueError("found a value, but operator Exists takes none; remove it, or set Equal")
        return self


class SecretKey(Document):
    """Key of a Secret of the same namespace."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: Annotated[str, StringConstraints(strict=True, pattern=SECRET_KEY_PATTERN, max_length=253)] = Field(
        description="Key in the Secret whose value is taken."
    )
    optional: bool = Field(False, description="Whether the pod starts without the Secret or its key.")

    @model_validator(mode="after")
    def _foreign(self) -> Self:
        if self.name.endswith(RESERVED_SECRETS):
            raise ValueError(f'found the Secret "{self.name}", named like one with keys of a federation; use another')
        return self


class ValueFrom(Document):
    """Source of a variable's value."""

    secret_key_ref: SecretKey = Field(description="Key of a Secret.")


class EnvironmentVariable(Document):
    """Environment variable of a container. Take a secret value from a Secret."""

    name: EnvName = Field(description="Name of the variable.")
    value: Annotated[str, StringConstraints(strict=True, max_length=4096)] = Field(
        "", description="Value of the variable, in plain text."
    )
    value_from: ValueFrom | None = Field(None, description="Source of the value, in place of `value`.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.value and self.value_from is not None:
            raise ValueError("found value and valueFrom; remove one")
        return self


class ClaimMount(Document):
    """PersistentVolumeClaim of the same namespace that is mounted into the pod."""

    claim_name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    mount_path: MountPath = Field(description="Path of the mount; not a folder that the operator mounts itself.")
    read_only: bool = Field(True, description="Whether the volume is mounted read-only.")


class ResourceClaim(Document):
    """Device or other resource of Dynamic Resource Allocation (DRA)."""

    name: Name = Field(description="Name of the claim within the pod.")
    resource_claim_name: ObjectName | None = Field(
        None, description="Name of an existing ResourceClaim, in place of a template."
    )
    resource_claim_template_name: ObjectName | None = Field(
        None,
        description="Name of a ResourceClaimTemplate, from which each pod gets its own claim.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.resource_claim_name is None) == (self.resource_claim_template_name is None):
            raise ValueError("needed is either resourceClaimName or resourceClaimTemplateName")
        return self


class PodOverrides(Document):
    """Overrides of the generated pod template. The operator checks these fields, and the API server what is in Kubernetes' own form."""

    image: Image | None = Field(None, description="Container image. Absent: the operator's setting.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="Policy for pulling the image. Absent: the operator's setting."
    )
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = Field(
        (), description="Names of Secrets in the namespace with credentials for the image registry."
    )
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=32), AfterValidator(_are_free)] = Field(
        {}, description="Additional labels of the pod."
    )
    annotations: Annotated[
        dict[LabelKey, Annotated[str, StringConstraints(strict=True, max_length=4096)]],
        Field(max_length=32),
        AfterValidator(_are_free),
    ] = Field({}, description="Additional annotations of the pod.")
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] = Field(
        {}, description="Labels that a node must have to run the pod."
    )
    affinity: KubernetesPart = Field({}, description="Affinity to nodes and other pods, in the form of a Pod's field.")
    topology_spread_constraints: Annotated[tuple[KubernetesPart, ...], Field(max_length=16)] = Field(
        (), description="Topology spread constraints, in the form of a Pod's field."
    )
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = Field(
        (), description="Taints of nodes that the pod tolerates."
    )
    env: Annotated[tuple[EnvironmentVariable, ...], Field(max_length=64)] = Field(
        (), description="Additional environment variables of the container."
    )
    volumes: Annotated[tuple[ClaimMount, ...], Field(max_length=16)] = Field(
        (), description="Additional PersistentVolumeClaims to mount."
    )
    shared_memory: Quantity | None = Field(
        None,
        description="Size of /dev/shm, which counts towards the container's memory limit. Absent: the node's default, often 64Mi; set it "
        "where several devices train together.",
    )
    resource_claims: Annotated[tuple[ResourceClaim, ...], Field(max_length=16)] = Field(
        (), description="Devices or other resources that the container claims by Dynamic Resource Allocation (DRA)."
    )
    runtime_class_name: ObjectName | None = Field(None, description="Name of the RuntimeClass, such as nvidia.")
    priority_class_name: ObjectName | None = Field(None, description="Name of the PriorityClass.")
    scheduler_name: ObjectName | None = Field(None, description="Name of the scheduler. Absent: the cluster's default.")

    @model_validator(mode="after")
    def _unique(self) -> Self:
        for name in _repetitions(variable.name for variable in self.env):
            raise ValueError(f"found the variable {name} twice in env; remove one")
        for path in _repetitions(mount.mount_path for mount in self.volumes):
            raise ValueError(f"found two volumes at {path}; give each its own mountPath")
        for name in _repetitions(claim.name for claim in self.resource_claims):
            raise ValueError(f"found the name {name} twice in resourceClaims; rename one")
        return self


def _repetitions(values: Iterable[str]) -> Iterator[str]:
    seen_values: set[str] = set()
    for value in values:
        if value in seen_values:
            yield value
        seen_values.add(value)

"""Overrides of generated pods: the few fields that a federation's author may set; the operator sets the rest."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from anchorage.api.base import (
    ENV_NAME_PATTERN,
    IMAGE_PATTERN,
    LABEL_KEY_PATTERN,
    LABEL_VALUE_PATTERN,
    MOUNT_PATH_PATTERN,
    QUANTITY_PATTERN,
    RESOURCE_PATTERN,
    SUBDOMAIN_PATTERN,
    Document,
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
    "/etc/anchorage",
    "/etc/anchorage-authority",
    "/etc/anchorage-enrolment",
    "/etc/anchorage-tls",
    "/tmp",
    "/var/lib/anchorage",
)
"""Folders that the operator mounts into pods."""


def _is_free(path: str) -> str:
    if path.rstrip("/") in RESERVED_PATHS:
        raise ValueError(f'found "{path}", a folder that the operator mounts itself; choose another one')
    return path


MountPath = Annotated[
    str,
    StringConstraints(strict=True, pattern=MOUNT_PATH_PATTERN, min_length=2, max_length=512),
    AfterValidator(_is_free),
]


class Resources(Document):
    """Compute resources of a pod. Ignored outside a cluster."""

    requests: Annotated[dict[ResourceName, Amount], Field(max_length=16)] = Field(
        {}, description="Amount reserved for the pod."
    )
    limits: Annotated[dict[ResourceName, Amount], Field(max_length=16)] = Field(
        {}, description="Amount that the pod may use at most."
    )


class Storage(Document):
    """Volume of the server. Ignored outside a cluster."""

    size: Quantity = Field("20Gi", description="Size of the volume, which holds checkpoints and spool files.")
    class_name: ObjectName | None = Field(
        None, description="Storage class of the volume. Default: the cluster's default class."
    )


class SiloStorage(Storage):
    """Volume of a managed agent. Ignored outside a cluster."""

    size: Quantity = Field(
        "5Gi", description="Size of the volume, which holds the agent's identity, audit log and models."
    )


class Toleration(Document):
    """Toleration of a node taint."""

    key: LabelKey | None = Field(None, description="Key of the taint. Default: every taint.")
    operator: Literal["Exists", "Equal"] = Field("Equal", description="Whether the taint's value must be equal.")
    value: LabelValue | None = Field(None, description="Value of the taint, for Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Effect of the taint. Default: every effect."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise ValueError("found no key, which tolerates every taint; set operator: Exists, or a key")
        if self.value is not None and self.operator == "Exists":
            raise ValueError("found a value, but operator Exists takes none; remove it, or set Equal")
        return self


class EnvironmentVariable(Document):
    """Environment variable of a container; not for secrets."""

    name: EnvName = Field(description="Name of the variable.")
    value: Annotated[str, StringConstraints(strict=True, max_length=4096)] = Field(
        "", description="Value of the variable."
    )


class ClaimMount(Document):
    """PersistentVolumeClaim of the same namespace that is mounted into the pod."""

    claim_name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    mount_path: MountPath = Field(description="Path at which the volume is mounted.")
    read_only: bool = Field(True, description="Whether the volume is mounted read-only.")


class PodOverrides(Document):
    """Overrides of the generated pod template. Ignored outside a cluster."""

    image: Image | None = Field(None, description="Container image. Default: the operator's setting.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="Policy for pulling the image. Default: the operator's setting."
    )
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = Field(
        (), description="Secrets of the namespace with the registry's credentials."
    )
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] = Field(
        {}, description="Labels that a node must have."
    )
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = Field(
        (), description="Node taints that the pod tolerates."
    )
    env: Annotated[tuple[EnvironmentVariable, ...], Field(max_length=64)] = Field(
        (), description="Additional environment variables."
    )
    volumes: Annotated[tuple[ClaimMount, ...], Field(max_length=16)] = Field(
        (), description="Additional volume claims to mount."
    )
    runtime_class_name: ObjectName | None = Field(None, description="Name of the RuntimeClass, such as nvidia.")
    priority_class_name: ObjectName | None = Field(None, description="Name of the PriorityClass.")

    @model_validator(mode="after")
    def _unique(self) -> Self:
        for name in _repeated(variable.name for variable in self.env):
            raise ValueError(f"found the variable {name} twice in env; remove one")
        for path in _repeated(mount.mount_path for mount in self.volumes):
            raise ValueError(f"found two volumes at {path}; give each its own mountPath")
        return self


def _repeated(values: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            yield value
        seen.add(value)

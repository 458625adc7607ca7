"""What a federation's author may say about a pod: few fields, so that the API stays small; the operator adds the rest."""

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
"""A DNS subdomain, as most names in Kubernetes are."""

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
"""Folders of the pods that the operator mounts."""


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
    """Resources of a pod; without meaning outside a cluster."""

    requests: Annotated[dict[ResourceName, Amount], Field(max_length=16)] = Field({}, description="What the pod needs.")
    limits: Annotated[dict[ResourceName, Amount], Field(max_length=16)] = Field({}, description="What it may use.")


class Storage(Document):
    """Volume of the server; without meaning outside a cluster."""

    size: Quantity = Field("20Gi", description="Size of the volume for checkpoints and spool files.")
    class_name: ObjectName | None = Field(None, description="Storage class; absent: the cluster's default.")


class SiloStorage(Storage):
    """Volume of a managed agent; without meaning outside a cluster."""

    size: Quantity = Field("5Gi", description="Size of the volume for identity, audit log and models.")


class Toleration(Document):
    """A taint of nodes that the pod tolerates."""

    key: LabelKey | None = Field(None, description="The taint; absent: every one.")
    operator: Literal["Exists", "Equal"] = Field("Equal", description="Whether the taint's value matters.")
    value: LabelValue | None = Field(None, description="Equal: the taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="The taint's effect; absent: every one."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise ValueError("found no key, which means every taint; set operator: Exists, or a key")
        if self.value is not None and self.operator == "Exists":
            raise ValueError("found a value, but operator Exists takes none; remove it, or set Equal")
        return self


class EnvironmentVariable(Document):
    """A variable of the pod's environment. Secrets do not belong here."""

    name: EnvName = Field(description="Name of the variable.")
    value: Annotated[str, StringConstraints(strict=True, max_length=4096)] = Field("", description="Its value.")


class ClaimMount(Document):
    """A volume claim of the same namespace, mounted into the pod."""

    claim_name: ObjectName = Field(description="The volume claim.")
    mount_path: MountPath = Field(description="Folder of the pod where it appears.")
    read_only: bool = Field(True, description="Whether the pod may only read it.")


class PodOverrides(Document):
    """What a pod has beside what the operator gives it; without meaning outside a cluster."""

    image: Image | None = Field(None, description="Image; absent: the operator's setting.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="When the image is pulled; absent: the operator's setting."
    )
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = Field(
        (), description="Secrets of the namespace that open the image's registry."
    )
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] = Field(
        {}, description="Labels that a node must have."
    )
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = Field(
        (), description="Taints of nodes that the pod tolerates."
    )
    env: Annotated[tuple[EnvironmentVariable, ...], Field(max_length=64)] = Field(
        (), description="Variables of the environment, one per name."
    )
    volumes: Annotated[tuple[ClaimMount, ...], Field(max_length=16)] = Field(
        (), description="Volume claims, one per mountPath."
    )
    runtime_class_name: ObjectName | None = Field(None, description="Runtime class, such as nvidia.")
    priority_class_name: ObjectName | None = Field(None, description="Priority class.")

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

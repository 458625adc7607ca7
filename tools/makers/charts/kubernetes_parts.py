"""Values of pods, volumes and services that both charts share. Only what the charts check themselves is typed; the API server checks the rest."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from anchorage.api.base import ENV_NAME_PATTERN, LABEL_KEY_PATTERN, LABEL_VALUE_PATTERN, QUANTITY_PATTERN
from anchorage.api.pod import Resources


class Values(BaseModel):
    """A mapping of values: unknown keys are refused, and every field has a description."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Free(BaseModel):
    """A mapping that the API server checks."""

    model_config = ConfigDict(frozen=True, extra="allow")


Word = Annotated[str, StringConstraints(max_length=253)]
ObjectName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253)
]
MaybeName = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]
"""A name, or empty for none."""
Image = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9][-A-Za-z0-9._:/@]*)?$", max_length=512)]
Registry = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][-A-Za-z0-9._:/]*$", max_length=400)]
Tag = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")]
Quantity = Annotated[str, StringConstraints(pattern=QUANTITY_PATTERN, max_length=32)]
LabelKey = Annotated[str, StringConstraints(pattern=LABEL_KEY_PATTERN, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE_PATTERN, max_length=63)]
Labels = dict[LabelKey, LabelValue]
Annotations = dict[LabelKey, str]
MountPath = Annotated[str, StringConstraints(pattern=r"^/[^:]+$", max_length=512)]
Cidr = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$", max_length=64)]
Port = Annotated[int, Field(ge=1, le=65535)]
NodePort = Annotated[int, Field(ge=0, le=65535)]
UserId = Annotated[
    int,
    Field(
        65532,
        ge=0,
        le=2**31 - 1,
        description="User and group of every pod's processes, and group of its volumes. 0: the cluster assigns them, as OpenShift does.",
    ),
]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
ServiceType = Literal["ClusterIP", "NodePort", "LoadBalancer"]
StorageClass = Annotated[str, StringConstraints(pattern=r"^(-|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]


class Toleration(Values):
    """Toleration of a node taint."""

    key: Word = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None


class Affinity(Values):
    """Affinity of the pod, in the form of Kubernetes' `affinity`."""

    node_affinity: Free | None = None
    pod_affinity: Free | None = None
    pod_anti_affinity: Free | None = None


class ValueFrom(Values):
    """Source of a variable's value."""

    secret_key_ref: Free | None = None
    config_map_key_ref: Free | None = None
    field_ref: Free | None = None
    resource_field_ref: Free | None = None


class Variable(Values):
    """Environment variable."""

    name: Annotated[str, StringConstraints(pattern=ENV_NAME_PATTERN, max_length=253)]
    value: str | None = None
    value_from: ValueFrom | None = None


class Volume(Values):
    """A volume of one of the kinds that the restricted Pod Security Standard allows."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 2, "maxProperties": 2})

    name: ObjectName
    config_map: Free | None = None
    csi: Free | None = None
    downward_api: Annotated[Free | None, Field(alias="downwardAPI")] = None
    empty_dir: Free | None = None
    ephemeral: Free | None = None
    persistent_volume_claim: Free | None = None
    projected: Free | None = None
    secret: Free | None = None


class VolumeMount(Values):
    """Mount of a volume of `extraVolumes` in the container."""

    name: ObjectName
    mount_path: MountPath
    sub_path: str | None = None
    read_only: bool | None = None


class Peer(Values):
    """Peer of a network policy."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    pod_selector: Free | None = None
    namespace_selector: Free | None = None
    ip_block: Free | None = None


class Pod(Values):
    """Settings of one of the chart's pods."""

    resources: Resources = Field(Resources(), description="Requests and limits of the container.")
    node_selector: Labels = Field({}, description="Labels that a node must have to run the pod.")
    tolerations: list[Toleration] = Field([], description="Node taints that the pod tolerates.")
    affinity: Affinity = Field(Affinity(), description="Affinity of the pod.")
    priority_class_name: MaybeName = Field("", description="Name of the PriorityClass.")
    runtime_class_name: MaybeName = Field("", description="Name of the RuntimeClass, such as nvidia.")
    env: list[Variable] = Field([], description="Additional environment variables of the container.")
    extra_volumes: list[Volume] = Field([], description="Additional volumes; hostPath is refused.")
    extra_volume_mounts: list[VolumeMount] = Field([], description="Mounts of the additional volumes.")
    pod_labels: Labels = Field({}, description="Additional labels of the pod.")
    pod_annotations: Annotations = Field({}, description="Annotations of the pod.")


class ServiceMonitor(Values):
    """A ServiceMonitor of the Prometheus operator."""

    enabled: bool = Field(False, description="Create a ServiceMonitor (needs the Prometheus operator's CRDs).")
    interval_seconds: Annotated[int, Field(ge=1, le=3600)] = Field(
        30, description="Interval in seconds at which metrics are scraped."
    )
    labels: Labels = Field({}, description="Labels by which Prometheus selects the object.")


class PrometheusRule(Values):
    """A PrometheusRule of the Prometheus operator."""

    enabled: bool = Field(False, description="Create a PrometheusRule (needs the Prometheus operator's CRDs).")
    labels: Labels = Field({}, description="Labels by which Prometheus selects the object.")


class Metrics(Values):
    """Objects for the Prometheus operator."""

    service_monitor: ServiceMonitor = ServiceMonitor()
    prometheus_rule: PrometheusRule = PrometheusRule()


class ServiceAccount(Values):
    """Service account of the pod."""

    create: bool = Field(True, description="Create the service account.")
    name: MaybeName = Field(
        "", description="Name of the service account. Empty: the release's name, or `default` if create is false."
    )
    annotations: Annotations = Field({}, description="Annotations of the service account.")


class Persistence(Values):
    """Volume claim of the pod's state."""

    size: Quantity = Field("5Gi", description="Size of the volume.")
    storage_class: StorageClass = Field(
        "",
        description="Storage class of the volume. Empty: the cluster's default class. A dash: no class, for volumes provisioned by hand.",
    )
    existing_claim: MaybeName = Field("", description="Name of an existing claim to use instead of a new one.")
    retain: bool = Field(True, description="Keep the claim when the release is uninstalled.")


GLOBAL: dict[str, Any] = {
    "type": "object",
    "description": "Global values of Helm, used if the chart is a dependency of another chart.",
}

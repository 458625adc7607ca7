"""Parts of pods, volumes and services that both charts take as values. They say no more than the charts need to refuse nonsense."""

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
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
ServiceType = Literal["ClusterIP", "NodePort", "LoadBalancer"]
StorageClass = Annotated[str, StringConstraints(pattern=r"^(-|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]


class Toleration(Values):
    """A taint of nodes that the pod tolerates."""

    key: Word = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None


class Affinity(Values):
    """Where the pod would rather, or must, run; as Kubernetes' `affinity`."""

    node_affinity: Free | None = None
    pod_affinity: Free | None = None
    pod_anti_affinity: Free | None = None


class ValueFrom(Values):
    """Where a variable's value comes from."""

    secret_key_ref: Free | None = None
    config_map_key_ref: Free | None = None
    field_ref: Free | None = None
    resource_field_ref: Free | None = None


class Variable(Values):
    """A variable of the environment."""

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
    """Where a volume of `extraVolumes` appears in the container."""

    name: ObjectName
    mount_path: MountPath
    sub_path: str | None = None
    read_only: bool | None = None


class Peer(Values):
    """Who a network policy lets in."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    pod_selector: Free | None = None
    namespace_selector: Free | None = None
    ip_block: Free | None = None


class Pod(Values):
    """What may be said about a pod of the chart."""

    resources: Resources = Field(Resources(), description="Requests and limits of the container.")
    node_selector: Labels = Field({}, description="Labels that a node must have.")
    tolerations: list[Toleration] = Field([], description="Taints of nodes that the pod tolerates.")
    affinity: Affinity = Field(Affinity(), description="Affinity of the pod.")
    priority_class_name: MaybeName = Field("", description="Priority class.")
    runtime_class_name: MaybeName = Field("", description="Runtime class, such as nvidia.")
    env: list[Variable] = Field([], description="More variables of the environment.")
    extra_volumes: list[Volume] = Field(
        [], description="More volumes; hostPath is refused, as the restricted standard does."
    )
    extra_volume_mounts: list[VolumeMount] = Field([], description="Where they appear.")
    pod_labels: Labels = Field({}, description="More labels of the pod.")
    pod_annotations: Annotations = Field({}, description="Annotations of the pod.")


class ServiceMonitor(Values):
    """A ServiceMonitor of the Prometheus operator."""

    enabled: bool = Field(False, description="Make a ServiceMonitor (needs the Prometheus operator's CRDs).")
    interval_seconds: Annotated[int, Field(ge=1, le=3600)] = Field(30, description="How often metrics are scraped.")
    labels: Labels = Field({}, description="Labels by which Prometheus finds it.")


class PrometheusRule(Values):
    """A PrometheusRule of the Prometheus operator."""

    enabled: bool = Field(False, description="Make a PrometheusRule (needs the Prometheus operator's CRDs).")
    labels: Labels = Field({}, description="Labels by which Prometheus finds it.")


class Metrics(Values):
    """What the Prometheus operator is told."""

    service_monitor: ServiceMonitor = ServiceMonitor()
    prometheus_rule: PrometheusRule = PrometheusRule()


class ServiceAccount(Values):
    """The account of a pod."""

    create: bool = Field(True, description="Make the account.")
    name: MaybeName = Field("", description="Its name; empty: the release's; without create: default.")
    annotations: Annotations = Field({}, description="Annotations of the account.")


class Persistence(Values):
    """The volume claim of a pod's state."""

    size: Quantity = Field("5Gi", description="Size of the volume.")
    storage_class: StorageClass = Field(
        "", description="Storage class; empty: the cluster's default; a dash: none, for volumes made by hand."
    )
    existing_claim: MaybeName = Field("", description="A claim to use instead of one of the chart's own.")
    retain: bool = Field(True, description="Keep the claim when the release is uninstalled.")


GLOBAL: dict[str, Any] = {"type": "object", "description": "Helm's own, where the chart is a part of another one."}

"""Values of charts/anchorage: the operator, and MLflow where it is wanted."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict

from anchorage.api.base import HOST_PATTERN, TRACKING_URI_PATTERN
from anchorage.api.pod import PodOverrides, Resources
from makers.charts.kubernetes_parts import (
    Annotations,
    Cidr,
    Image,
    MaybeName,
    Metrics,
    NodePort,
    ObjectName,
    Peer,
    Persistence,
    Pod,
    Port,
    PullPolicy,
    Registry,
    ServiceAccount,
    ServiceType,
    Tag,
    Values,
)

Seconds = Annotated[int, Field(ge=1, le=3600)]
HostName = Annotated[str, StringConstraints(pattern=HOST_PATTERN, max_length=253)]
Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)]


class Crds(Values):
    """The custom resource definitions."""

    enabled: bool = Field(True, description="Install and upgrade the definitions of Federation and Silo.")
    keep: bool = Field(
        True, description="Keep them, and with them every Federation and Silo, when the release is uninstalled."
    )


class Images(Values):
    """The project's images."""

    registry: Registry = Field(
        "localhost",
        description="Registry, and folder in it, of the project's images; `make images` builds them as localhost/…",
    )
    tag: Tag = Field("", description="Tag of the images; empty: the chart's appVersion.")
    operator: Image = Field(
        "", description="Whole name of the operator's image; empty: registry/anchorage-operator:tag."
    )
    server: Image = Field("", description="Whole name of the servers' image; empty: registry/anchorage-server:tag.")
    agent: Image = Field(
        "", description="Whole name of the managed agents' image; empty: registry/anchorage-agent:tag."
    )
    mlflow: Image = Field(
        "", description="Whole name of MLflow's image; empty: the servers' image, which has MLflow in it."
    )
    pull_policy: PullPolicy = Field("IfNotPresent", description="When nodes pull images.")
    pull_secrets: list[ObjectName] = Field(
        [], description="Names of Secrets that open the registry, in the release's and in every federation's namespace."
    )


class Rbac(Values):
    """Rights of the operator."""

    create: bool = Field(True, description="Make the roles and bind them to the operator's account.")
    scope: Literal["Namespace", "Cluster"] = Field(
        "Namespace",
        description="Namespace: a Role in every watched namespace. Cluster: one ClusterRole, and all are watched.",
    )
    user_roles: bool = Field(
        False,
        description="Make ClusterRoles that let the cluster's view, edit and admin roles read and write Federations and Silos.",
    )


class Watch(Values):
    """What the operator looks after."""

    namespaces: Annotated[list[Namespace], Field(max_length=256)] = Field(
        [], description="Namespaces with federations, with scope Namespace; empty: the release's own."
    )


class Operator(Pod):
    """The operator's pod."""

    resources: Resources = Field(
        Resources(requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "512Mi"}),
        description="Requests and limits of the container.",
    )
    cluster_domain: ObjectName = Field("cluster.local", description="Domain of the cluster's services.")
    resync_seconds: Seconds = Field(30, description="How often every federation is looked at, whatever the watch says.")
    poll_seconds: Seconds = Field(5, description="How often a running server is asked for its progress.")


class Defaults(Values):
    """What servers and managed agents get where their own spec says nothing."""

    server: PodOverrides = Field(
        PodOverrides(), description="Under `spec.server.pod` of every Federation; the same fields."
    )
    agent: PodOverrides = Field(PodOverrides(), description="Under `spec.managed.pod` of every Silo; the same fields.")
    tracking_uri: Annotated[str, StringConstraints(pattern=f"^$|{TRACKING_URI_PATTERN}", max_length=1024)] = Field(
        "", description="MLflow for Federations that name none; empty: the chart's own, where mlflow.enabled."
    )


class NetworkPolicy(Values):
    """Network policies of the chart's own pods; the operator makes those of servers and agents."""

    enabled: bool = Field(True, description="Make network policies.")
    api_server_cidrs: list[Cidr] = Field(
        [], description="Addresses of the API server, to narrow the operator's way out; empty: any."
    )
    api_server_ports: Annotated[list[Port], Field(min_length=1)] = Field(
        [443, 6443], description="Ports of the API server, before and behind its Service."
    )
    mlflow_from: list[Peer] = Field(
        [],
        description="Who may call MLflow beside federations' servers, as `from` of a NetworkPolicy; such as an ingress.",
    )


class MlflowService(Values):
    """MLflow's Service."""

    type: ServiceType = Field("ClusterIP", description="MLflow has no log-in of its own: open it to people with care.")
    port: Port = Field(5000, description="Port of the Service.")
    node_port: NodePort = Field(0, description="Port of the nodes; 0: any that is free.")
    annotations: Annotations = Field({}, description="Annotations of the Service.")


class Switch(Values):
    """Whether there is one."""

    enabled: bool = Field(False, description="Run MLflow beside the operator.")


class Mlflow(Pod, Switch):
    """MLflow: one pod, SQLite and artifacts on one volume."""

    service: MlflowService = MlflowService()
    persistence: Persistence = Persistence(size="20Gi")
    allowed_hosts: list[HostName] = Field(
        [], description="More host names by which MLflow may be called; its Service's names and localhost are allowed."
    )
    resources: Resources = Field(
        Resources(requests={"cpu": "50m", "memory": "512Mi"}, limits={"memory": "2Gi"}),
        description="Requests and limits of the container.",
    )


_ONE_SCOPE: JsonDict = {
    "if": {"properties": {"rbac": {"properties": {"scope": {"const": "Cluster"}}}}},
    "then": {"properties": {"watch": {"properties": {"namespaces": {"maxItems": 0}}}}},
}


class ChartValues(Values):
    """Installs the operator, the definitions of Federation and Silo and, where it is wanted, MLflow."""

    model_config = ConfigDict(json_schema_extra=_ONE_SCOPE)

    name_override: MaybeName = Field("", description="Replaces the chart's name in the names of its objects.")
    fullname_override: MaybeName = Field("", description="Replaces release and chart in the names of its objects.")
    crds: Crds = Crds()
    images: Images = Images()
    rbac: Rbac = Rbac()
    watch: Watch = Watch()
    service_account: ServiceAccount = ServiceAccount()
    operator: Operator = Operator()
    defaults: Defaults = Defaults()
    network_policy: NetworkPolicy = NetworkPolicy()
    metrics: Metrics = Metrics()
    mlflow: Mlflow = Mlflow()

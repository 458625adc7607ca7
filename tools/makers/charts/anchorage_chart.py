"""Values of charts/anchorage: the operator and, optionally, MLflow."""

from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict

from anchorage.api.base import HOST_PATTERN, TRACKING_URI_PATTERN
from anchorage.api.pod import PodOverrides, Resources
from anchorage.api.pod_limits import FORBIDDEN_ENV_PATTERN, STATE_CLAIM_PATTERN, OverrideField, PodOverrideLimits
from makers.charts.kubernetes_parts import (
    Annotations,
    Cidr,
    Image,
    Labels,
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
    UserId,
    Values,
)

Seconds = Annotated[int, Field(ge=1, le=3600)]
HostName = Annotated[str, StringConstraints(pattern=HOST_PATTERN, max_length=253)]
Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)]


class Crds(Values):
    """The custom resource definitions."""

    enabled: bool = Field(True, description="Install and upgrade the definitions of Federation and Silo.")
    keep: bool = Field(
        True,
        description="Keep the definitions, and with them every Federation and Silo, when the release is uninstalled.",
    )


class Images(Values):
    """The project's images."""

    registry: Registry = Field(
        "localhost",
        description="Registry and folder of the project's images. `make images` builds them as localhost/…",
    )
    tag: Tag = Field("", description="Tag of the images. Empty: the chart's appVersion.")
    operator: Image = Field(
        "", description="Full name of the operator's image. Empty: registry/anchorage-operator:tag."
    )
    server: Image = Field("", description="Full name of the servers' image. Empty: registry/anchorage-server:tag.")
    agent: Image = Field("", description="Full name of the managed agents' image. Empty: registry/anchorage-agent:tag.")
    mlflow: Image = Field(
        "",
        description="Full name of MLflow's image. Empty: the servers' image, which contains MLflow. Another one needs anchorage's server and "
        "Flask-WTF for `mlflow.auth`.",
    )
    pull_policy: PullPolicy = Field("IfNotPresent", description="Policy for pulling images.")
    pull_secrets: list[ObjectName] = Field(
        [],
        description="Names of Secrets with the registry's credentials, in the release's namespace and in every federation's.",
    )


class Rbac(Values):
    """Permissions of the operator."""

    create: bool = Field(True, description="Create the roles and bind them to the operator's service account.")
    scope: Literal["Namespace", "Cluster"] = Field(
        "Namespace",
        description="Scope of the permissions. Namespace: a Role in every watched namespace. Cluster: one ClusterRole; all namespaces are watched.",
    )
    federations: dict[Namespace, Annotated[list[Namespace], Field(max_length=1000)]] = Field(
        {},
        description="Names of the federations, each with the names of its silos, whose Secrets the operator may read and change; it may still "
        "create others. Empty: any Secret of a watched namespace.",
    )
    user_roles: bool = Field(
        False,
        description="Create ClusterRoles that extend the cluster's view, edit and admin roles to Federations and Silos.",
    )
    protect_admission: bool = Field(
        False,
        description="Create a ValidatingAdmissionPolicy for the whole cluster: only those with the verb `approve` on silos may set "
        "`spec.admission`, or create a managed Silo. `userRoles` gives the verb to the admin role.",
    )


class Watch(Values):
    """Namespaces that the operator watches."""

    namespaces: Annotated[list[Namespace], Field(max_length=256)] = Field(
        [],
        description="Namespaces to watch if rbac.scope is Namespace. Empty: the release's namespace, or with `labels` none but theirs.",
    )
    labels: Annotated[Labels, Field(max_length=16)] = Field(
        {},
        description="Labels of further namespaces to watch while they have all of them. If rbac.scope is Namespace, the operator needs a RoleBinding "
        "in each, of the ClusterRole that the chart makes.",
    )


class Operator(Pod):
    """The operator's pod."""

    replicas: Annotated[int, Field(ge=1, le=9)] = Field(
        1, description="Pods of the operator: one holds a Lease and acts, the others take over within 15 seconds."
    )
    resources: Resources = Field(
        Resources(requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "512Mi"}),
        description="Requests and limits of the container.",
    )
    cluster_domain: ObjectName = Field("cluster.local", description="DNS domain of the cluster's services.")
    resync_seconds: Seconds = Field(
        30, description="Interval in seconds at which every federation is reconciled without a change."
    )
    poll_seconds: Seconds = Field(
        5, description="Interval in seconds at which a running server is asked for its progress."
    )
    upgrades_at_once: Annotated[int, Field(ge=0, le=1000)] = Field(
        1,
        description="Federations at a time whose pods are replaced, after a commit, when the chart's version, images or defaults change. "
        "0: only when they are suspended.",
    )


class Defaults(Values):
    """Defaults for servers and managed agents whose own spec sets nothing else."""

    server: PodOverrides = Field(
        PodOverrides(), description="Defaults of `spec.server.pod` of every Federation; same fields."
    )
    agent: PodOverrides = Field(
        PodOverrides(), description="Defaults of `spec.managed.pod` of every Silo; same fields."
    )
    tracking_uri: Annotated[str, StringConstraints(pattern=f"^$|{TRACKING_URI_PATTERN}", max_length=1024)] = Field(
        "",
        description="MLflow tracking URI of Federations that set none. Empty: the chart's own MLflow if mlflow.enabled.",
    )
    tracking_secret: MaybeName = Field(
        "",
        description="Name of a Secret with MLflow's credentials in every federation's namespace; its keys are MLFLOW_TRACKING_USERNAME "
        "and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN. Servers get them only for `trackingUri` and what is below it. "
        "Empty: none.",
    )


class PodOverridesOfDocuments(PodOverrideLimits, Values):
    """What Federations and Silos may set in their pods. The operator enforces it; `defaults` are not limited by it."""

    admission_policy: bool = Field(
        True,
        description="Create a ValidatingAdmissionPolicy for the watched namespaces, by which the API server refuses such documents at once. Needs "
        "Kubernetes 1.30; without it the operator refuses them.",
    )


class IssuerRef(Values):
    """Issuer of cert-manager that certifies the certificate authorities of new federations."""

    name: MaybeName = Field("", description="Name of the issuer. Empty: each authority certifies itself.")
    kind: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=63)] = Field(
        "Issuer",
        description="Issuer, which must be in every federation's namespace, ClusterIssuer, or the kind of another controller.",
    )
    group: HostName = Field("cert-manager.io", description="API group of the issuer.")


class CertificateAuthority(Values):
    """The certificate authority of each federation."""

    issuer_ref: IssuerRef = IssuerRef()


class NetworkPolicy(Values):
    """Network policies of the chart's own pods. The operator creates those of servers and agents."""

    enabled: bool = Field(True, description="Create the network policies.")
    api_server_cidrs: list[Cidr] = Field(
        [], description="Addresses of the API server to which the operator's egress is limited. Empty: any address."
    )
    api_server_ports: Annotated[list[Port], Field(min_length=1)] = Field(
        [443, 6443], description="Ports of the API server: of its Service and of its endpoints."
    )
    dns_cidrs: list[Cidr] = Field(
        [],
        description="Addresses of name servers besides pods, such as a cache on the nodes. Empty: private and link-local addresses.",
    )
    mlflow_from: list[Peer] = Field(
        [],
        description="Additional peers that may connect to MLflow, such as an ingress; same form as `from` of a NetworkPolicy. "
        "Servers of federations in the watched namespaces are always allowed.",
    )


class MlflowService(Values):
    """MLflow's Service."""

    type: ServiceType = Field(
        "ClusterIP",
        description="Type of the Service. MLflow speaks plain HTTP: do not expose it to an open network.",
    )
    port: Port = Field(5000, description="Port of the Service.")
    node_port: NodePort = Field(0, description="Node port of the Service. 0: assigned by the cluster.")
    annotations: Annotations = Field({}, description="Annotations of the Service.")


class Dashboard(Values):
    """A dashboard for Grafana, in a ConfigMap that Grafana's sidecar finds by its labels."""

    enabled: bool = Field(False, description="Create the ConfigMap.")
    labels: Labels = Field({"grafana_dashboard": "1"}, description="Labels by which Grafana's sidecar selects it.")


class Monitoring(Metrics):
    """Objects for the Prometheus operator and for Grafana."""

    dashboard: Dashboard = Dashboard()


class MlflowAuth(Values):
    """Log-in to MLflow: an administrator, and one user for each federation, who sees its own experiments and models alone."""

    mode: Literal["Auto", "On", "Off"] = Field(
        "Auto",
        description="Whether MLflow asks for a log-in. Auto: a new one does; one of this release that ran without goes on without (where Helm can "
        "ask the cluster, which `helm template` cannot). Servers of federations get their user and password from the operator.",
    )
    existing_secret: MaybeName = Field(
        "",
        description="Name of a Secret with the keys admin-password, federations-key and session-key, of at least 20 random characters each. Empty: "
        "the chart makes one and keeps it. Needed where charts are rendered without the cluster, as by Argo CD, which would make another each time.",
    )


class Switch(Values):
    """Switch of the chart's MLflow."""

    enabled: bool = Field(False, description="Run an MLflow server in the release's namespace.")


class Mlflow(Pod, Switch):
    """MLflow server: one pod with SQLite and artifacts on one volume."""

    service: MlflowService = MlflowService()
    auth: MlflowAuth = MlflowAuth()
    persistence: Persistence = Persistence(size="20Gi")
    allowed_hosts: list[HostName] = Field(
        [],
        description="Additional host names that MLflow accepts; the names of its Service and localhost are always accepted.",
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
    """Installs the operator, the definitions of Federation and Silo and, optionally, MLflow."""

    model_config = ConfigDict(json_schema_extra=_ONE_SCOPE)

    name_override: MaybeName = Field("", description="Replaces the chart's name in object names.")
    fullname_override: MaybeName = Field("", description="Replaces the release's and the chart's name in object names.")
    user_id: UserId
    crds: Crds = Crds()
    images: Images = Images()
    rbac: Rbac = Rbac()
    watch: Watch = Watch()
    service_account: ServiceAccount = ServiceAccount()
    operator: Operator = Operator()
    defaults: Defaults = Defaults()
    pod_overrides: PodOverridesOfDocuments = PodOverridesOfDocuments()
    authority: CertificateAuthority = CertificateAuthority()
    network_policy: NetworkPolicy = NetworkPolicy()
    metrics: Monitoring = Monitoring()
    mlflow: Mlflow = Mlflow()


def pod_limits_template() -> str:
    """Return the template with what the ValidatingAdmissionPolicy knows of the limits, the same as the operator does."""
    fields = " ".join(f'"{name}"' for name in get_args(OverrideField))
    defaults = PodOverridesOfDocuments().model_dump_json(by_alias=True)
    return (
        "{{/* What documents may name in pods. Generated by `make generate` from core/anchorage/api/pod_limits.py. */}}\n"
        "{{/* The values, as JSON; those of a release that knew none are the defaults. */}}\n"
        '{{- define "anchorage.podOverrides" -}}\n'
        f"{{{{ mergeOverwrite (fromJson `{defaults}`) (deepCopy (default dict .Values.podOverrides)) | toJson }}}}\n"
        "{{- end -}}\n"
        f'{{{{- define "anchorage.podFields" -}}}}\n{{{{ toJson (list {fields}) }}}}\n{{{{- end -}}}}\n'
        f'{{{{- define "anchorage.forbiddenEnv" -}}}}\n{FORBIDDEN_ENV_PATTERN}\n{{{{- end -}}}}\n'
        f'{{{{- define "anchorage.stateClaim" -}}}}\n{STATE_CLAIM_PATTERN}\n{{{{- end -}}}}\n'
    )

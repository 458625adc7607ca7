"""The operator's own settings: one YAML document, from the chart's values."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from anchorage.api.base import Document, Name
from anchorage.api.federation import TrackingUri
from anchorage.api.pod import Image, LabelKey, LabelValue, ObjectName, PodOverrides
from anchorage.api.pod_limits import PodOverrideLimits
from anchorage.api.single import read_document

Address = Annotated[str, StringConstraints(strict=True, pattern=r"^[^\s/]+:[0-9]{1,5}$", max_length=260)]
DomainName = Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
Cidr = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$", max_length=64)]
ClaimOfNamespace = Annotated[str, StringConstraints(strict=True, pattern=r"^[-a-z0-9]+/[-a-z0-9.]+$", max_length=317)]
Interval = Annotated[int, Field(ge=1, le=3600)]


class Images(Document):
    """Images of the pods that the operator makes."""

    server: Image = Field(description="Image of the aggregation server.")
    agent: Image = Field(description="Image of the agents of managed silos.")


class AuthorityIssuer(Document):
    """Issuer of cert-manager that signs the certificates of federations' authorities."""

    name: ObjectName = Field(description="Name of the issuer.")
    kind: Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=63)] = Field(
        "Issuer",
        description="Kind of the issuer: Issuer, in each federation's namespace, ClusterIssuer, or another controller's kind.",
    )
    group: DomainName = Field("cert-manager.io", description="API group of the issuer.")


class TrackingLogin(Document):
    """How federations log in to the chart's MLflow."""

    uri: TrackingUri = Field(description="MLflow to which the servers send their user and password, and to no other.")
    key: Path = Field(description="File with the key from which each federation's password is derived.")


class OperatorSettings(Document):
    """Settings of the operator, and defaults for Federations and Silos."""

    images: Images = Field(description="Images of the pods that the operator creates.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="Image pull policy of the pods."
    )
    image_pull_secrets: Annotated[tuple[Name, ...], Field(max_length=16)] = Field(
        (), description="Names of Secrets with credentials for the image registry, in each federation's namespace."
    )
    server: PodOverrides = Field(PodOverrides(), description="Defaults of `spec.server.pod` of every Federation.")
    agent: PodOverrides = Field(PodOverrides(), description="Defaults of `spec.managed.pod` of every Silo.")
    pod_overrides: PodOverrideLimits = Field(
        PodOverrideLimits(),
        description="What Federations and Silos may set in their pods; the defaults above are not limited.",
    )
    reserved_claims: Annotated[tuple[ClaimOfNamespace, ...], Field(max_length=16)] = Field(
        (), description="Volume claims that no document may name, such as MLflow's, as namespace/name."
    )
    tracking_uri: TrackingUri | None = Field(
        None,
        description="MLflow tracking URI of federations that set no `spec.tracking.uri`. Left out: an SQLite file on the server's volume.",
    )
    tracking_secret: ObjectName | None = Field(
        None,
        description="Name of the Secret with MLflow's credentials in each federation's namespace, for the servers, which send them to "
        "`trackingUri` and below it alone. Left out: none.",
    )
    tracking_login: TrackingLogin | None = Field(
        None, description="Log-in to the chart's MLflow. Left out: it asks for none, or there is none."
    )
    authority_issuer: AuthorityIssuer | None = Field(
        None,
        description="Issuer of cert-manager for new certificate authorities. Left out: each authority signs its own certificate.",
    )
    user_id: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        65532,
        description="User and group of the pods' processes, and group of their volumes. 0: the cluster assigns them.",
    )
    cluster_domain: DomainName = Field("cluster.local", description="DNS domain of the cluster.")
    dns_cidrs: Annotated[tuple[Cidr, ...], Field(max_length=64)] = Field(
        (),
        description="Addresses of name servers that are not pods, in the network policies of servers and agents. Empty: private and "
        "link-local addresses.",
    )
    watch: Annotated[tuple[Name, ...], Field(max_length=256)] = Field(
        (), description="Names of namespaces to watch. Empty: all, unless `watchLabels` names some."
    )
    watch_labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] = Field(
        {},
        description="Labels, all of which a further namespace must have to be watched. Empty: none but those in `watch`.",
    )
    resync_seconds: Interval = Field(30, description="Interval at which every federation is reconciled, in seconds.")
    poll_seconds: Interval = Field(
        5, description="Interval at which running servers are polled and progress is written to the status, in seconds."
    )
    upgrades_at_once: Annotated[int, Field(ge=0, le=1000)] = Field(
        1,
        description="Number of federations whose pods a new version replaces at the same time, between rounds. 0: only when they are "
        "suspended.",
    )
    lease: ObjectName | None = Field(
        None,
        description="Name of the Lease in the operator's namespace by which one of several replicas leads. Left out: no election.",
    )
    listen: Address = Field(
        "[::]:8080",
        description="Address of the probe and metrics endpoint, host:port. `[::]` is every address, of IPv4 too.",
    )

    @model_validator(mode="after")
    def _credentials_have_an_address(self) -> Self:
        if self.tracking_secret is not None and self.tracking_uri is None:
            raise ValueError("found trackingSecret without trackingUri; name the MLflow that the credentials are for")
        return self


def read_settings(path: Path) -> OperatorSettings:
    """Read the settings.

    Raises
    ------
    DocumentError
        The file cannot be read, or a field is wrong; with every mistake.
    """
    return read_document(path, OperatorSettings)

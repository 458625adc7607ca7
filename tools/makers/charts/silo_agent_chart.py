"""Values of charts/silo-agent: a hospital's agent, in the hospital's own cluster."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict

from anchorage.api.base import ADDRESS_PATTERN, Name
from anchorage.api.data import DataSection
from anchorage.api.pod import Resources
from anchorage_silo.policy import Policy
from makers.charts.kubernetes_parts import (
    Cidr,
    Image,
    MaybeName,
    Metrics,
    ObjectName,
    Persistence,
    Pod,
    PullPolicy,
    Registry,
    ServiceAccount,
    Tag,
    Values,
)

Address = Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN, max_length=260)]
Pem = Annotated[
    str, StringConstraints(pattern=r"^\s*-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*$")
]

_TWO_TOKENS: JsonDict = {
    "not": {
        "required": ["token", "existingSecret"],
        "properties": {"token": {"minLength": 1}, "existingSecret": {"minLength": 1}},
    }
}


def _needs(format_is: str, *fields: str) -> JsonDict:
    return {"if": {"properties": {"format": {"const": format_is}}}, "then": {"required": list(fields)}}


_BELOW: JsonDict = {"not": {"pattern": r"(^|/)\.\.(/|$)"}}
DATA_RULES: JsonDict = {
    "allOf": [
        _needs("ImageFolder", "claimName"),
        _needs("CsvManifest", "claimName", "manifest"),
        {"properties": {"path": _BELOW, "manifest": _BELOW}},
    ]
}
"""What the data section's own rules say about fields that need each other, as far as a schema can."""


class Enrolment(Values):
    """What `fedctl silo invite` wrote at the coordinating site, as it is."""

    model_config = ConfigDict(json_schema_extra=_TWO_TOKENS)

    federation: Name = Field(description="The federation.", examples=["derm"])
    silo: Name = Field(description="This hospital's name in it.", examples=["hospital-a"])
    labels: Literal["None", "All", "Partial"] = Field(description="Which of the images have labels.", examples=["None"])
    server: Address = Field(description="Where the server takes silos.", examples=["federation.example.org:8443"])
    enrolment: Address = Field(description="Where the server enrols silos.", examples=["federation.example.org:8444"])
    authority: Pem = Field(
        description="Certificate of the federation's authority, PEM.",
        examples=["-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n"],
    )
    token: Annotated[str, StringConstraints(pattern=r"^\S*$", max_length=512)] = Field(
        "", description="One-time token, for the first start only; afterwards the agent has a certificate of its own."
    )
    existing_secret: MaybeName = Field("", description="A Secret with the token as `token`, instead of the token here.")


class Images(Values):
    """The agent's image."""

    registry: Registry = Field(
        "localhost", description="Registry, and folder in it, of the image; `make images` builds it as localhost/…"
    )
    tag: Tag = Field("", description="Tag of the image; empty: the chart's appVersion.")
    agent: Image = Field("", description="Whole name of the image; empty: registry/anchorage-agent:tag.")
    pull_policy: PullPolicy = Field("IfNotPresent", description="When nodes pull the image.")
    pull_secrets: list[ObjectName] = Field([], description="Names of Secrets that open the registry.")


class NetworkPolicy(Values):
    """The network policy of the agent."""

    enabled: bool = Field(
        True, description="Let the agent call only the server (or the proxy) and names; let in only probes and metrics."
    )
    egress_cidrs: list[Cidr] = Field(
        [],
        description="Addresses of the server, or of the proxy where there is one, to narrow the way out; empty: any.",
    )


class Site(Values):
    """What only this hospital knows."""

    name_override: MaybeName = Field("", description="Replaces the chart's name in the names of its objects.")
    fullname_override: MaybeName = Field("", description="Replaces release and chart in the names of its objects.")
    enrolment: Enrolment = Field(description="What `fedctl silo invite` wrote at the coordinating site, as it is.")
    data: DataSection = Field(
        description="Where the images are: the fields of a data section (docs/federation.md). The claim is mounted read-only.",
        examples=[{"format": "ImageFolder", "claimName": "images", "path": "dermoscopy"}],
        json_schema_extra=DATA_RULES,
    )
    policy: Policy = Field(
        Policy(), description="The hospital's policy: what may leave, whatever the federation asks. Empty: no limits."
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where to train.")
    proxy: Annotated[
        str, StringConstraints(pattern=r"^(http://([^\s/:@]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}/?)?$", max_length=260)
    ] = Field("", description="HTTP proxy that the agent dials through (CONNECT), http://host:port; empty: none.")


class ChartValues(Pod, Site):
    """Installs a hospital's agent, which only dials out."""

    resources: Resources = Field(
        Resources(requests={"cpu": "500m", "memory": "2Gi"}),
        description="Requests and limits of the agent; a GPU goes under limits, nvidia.com/gpu: 1.",
    )
    images: Images = Images()
    service_account: ServiceAccount = ServiceAccount()
    persistence: Persistence = Persistence()
    network_policy: NetworkPolicy = NetworkPolicy()
    metrics: Metrics = Metrics()

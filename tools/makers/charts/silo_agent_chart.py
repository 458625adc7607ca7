"""Values of charts/silo-agent: a hospital's agent, in the hospital's own cluster."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict

from anchorage.api.agent import SiteOptions, option_names
from anchorage.api.base import ADDRESS_PATTERN, Name
from anchorage.api.data import SiloData
from anchorage.api.pod import Resources
from anchorage_silo.configure import Certificate
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
    UserId,
    Values,
)

Address = Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN, max_length=260)]

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
"""The data section's rules about fields that require each other, as far as a JSON schema can express them."""


class Enrolment(Values):
    """Enrolment values, copied unchanged from the output of `fedctl silo invite`."""

    model_config = ConfigDict(json_schema_extra=_TWO_TOKENS)

    federation: Name = Field(description="Name of the federation.", examples=["derm"])
    silo: Name = Field(description="Name of this hospital's silo in the federation.", examples=["hospital-a"])
    labels: Literal["None", "All", "Partial"] = Field(
        description="Which of the images have labels that may be used.", examples=["None"]
    )
    server: Address = Field(
        description="Address of the server for silos, host:port.", examples=["federation.example.org:8443"]
    )
    enrolment: Address = Field(
        description="Address of the server for enrolment, host:port.", examples=["federation.example.org:8444"]
    )
    authority: Certificate = Field(
        description="Certificate of the federation's certificate authority, PEM.",
        examples=["-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n"],
    )
    token: Annotated[str, StringConstraints(pattern=r"^\S*$", max_length=512)] = Field(
        "",
        description="One-time enrolment token, needed for the first start only.",
    )
    existing_secret: MaybeName = Field(
        "", description="Name of a Secret with the token under the key `token`, instead."
    )


class Images(Values):
    """Container image of the agent."""

    registry: Registry = Field(
        "localhost", description="Registry and folder of the image. `make images` builds it as localhost/…"
    )
    tag: Tag = Field("", description="Tag of the image. Empty: the chart's appVersion.")
    agent: Image = Field("", description="Full name of the image. Empty: registry/anchorage-agent:tag.")
    pull_policy: PullPolicy = Field("IfNotPresent", description="Policy for pulling the image.")
    pull_secrets: list[ObjectName] = Field([], description="Names of Secrets with the registry's credentials.")


class NetworkPolicy(Values):
    """Network policy of the agent's pod."""

    enabled: bool = Field(
        True,
        description="Create a network policy: egress to the server (or the proxy) and DNS only, ingress to probes and metrics only.",
    )
    egress_cidrs: list[Cidr] = Field(
        [],
        description="Addresses of the server, or of the proxy if one is set, to which egress is limited. Empty: any address.",
    )
    dns_cidrs: list[Cidr] = Field(
        [],
        description="Addresses of name servers besides pods, such as a cache on the nodes. Empty: private and link-local addresses.",
    )


class Hospital(Values):
    """What this hospital takes part in, with which images, and what it lets out."""

    name_override: MaybeName = Field("", description="Replaces the chart's name in object names.")
    fullname_override: MaybeName = Field("", description="Replaces the release's and the chart's name in object names.")
    enrolment: Enrolment = Field(
        description="Enrolment values, copied unchanged from the output of `fedctl silo invite`."
    )
    data: SiloData = Field(
        description="Images of the hospital: the fields of a data section (docs/federation.md). The claim is mounted read-only.",
        examples=[{"format": "ImageFolder", "claimName": "images", "path": "dermoscopy"}],
        json_schema_extra=DATA_RULES,
    )
    policy: Policy = Field(
        Policy(),
        description="The hospital's policy: limits on what leaves, whatever the federation asks for. Empty: what the shown federation needs, with "
        "relative noise.",
    )


class Site(SiteOptions, Hospital):
    """Values of this hospital."""

    shared_weights: MaybeName = Field(
        "",
        description="Name of an existing claim in which agents of several federations keep frozen weights, each fetched once. Empty: none.",
    )
    proxy: Annotated[
        str, StringConstraints(pattern=r"^(http://([^\s/:@]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}/?)?$", max_length=260)
    ] = Field(
        "",
        description="HTTP proxy for every connection to the server, http://host:port; it must allow CONNECT. Empty: none.",
    )


class ChartValues(Pod, Site):
    """Installs a hospital's agent, which only dials out."""

    resources: Resources = Field(
        Resources(requests={"cpu": "500m", "memory": "2Gi"}),
        description="Requests and limits of the container. For GPUs set limits, nvidia.com/gpu: as many as `devices`.",
    )
    user_id: UserId
    images: Images = Images()
    service_account: ServiceAccount = ServiceAccount()
    persistence: Persistence = Persistence()
    network_policy: NetworkPolicy = NetworkPolicy()
    metrics: Metrics = Metrics()


def options_template() -> str:
    """Return the template that writes the values of the agent's options into its configuration."""
    names = " ".join(f'"{name}"' for name in option_names(SiteOptions))
    return (
        "{{/* Options of the agent. Generated by `make generate` from core/anchorage/api/agent.py. */}}\n"
        f'{{{{- define "silo-agent.options" -}}}}\n{{{{ toYaml (pick .Values {names}) }}}}\n{{{{- end -}}}}\n'
    )

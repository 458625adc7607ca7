"""The observed state of a federation: the only input of `plan`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anchorage.api.status import FederationStatus
from anchorage.transport.kube.resources import RESOURCES, Json
from anchorage.transport.server_client import CertificateRequest, Member

CHILD_KINDS: Mapping[str, str] = {
    kind: RESOURCES[kind].api_version
    for kind in ("StatefulSet", "Service", "ConfigMap", "ServiceAccount", "NetworkPolicy")
}
"""Kinds of the objects that the operator makes by server-side apply and watches, with their apiVersion."""


@dataclass(frozen=True, slots=True)
class AuthorityFacts:
    """Content of the Secret ``<federation>-authority``, without the key."""

    certificate: str
    """``ca.pem``, which is public; of two authorities while one takes the other's place, the new one first."""
    not_after: float
    """When the certificate ends, of two the new one's, seconds since the epoch."""
    owned: bool = False
    """Whether the Secret has the Federation as its owner, and so goes with it."""
    is_retained: bool = True
    """Whether its labels and annotations keep others from pruning it; those of an earlier version do not."""
    key: str = ""
    """SHA-256 of the public key, hexadecimal; of two the new one's."""
    former_key: str = ""
    """The same of the authority whose place is taken; empty where there is one alone."""
    damage: str = ""
    """What of the Secret cannot be used, one line; empty where all can. An authority that waits for its certificate has none yet."""
    origin: str = ""
    """Hash of the certificate of the first of the authorities that took each other's place: by it agents know whether theirs is still trusted."""


@dataclass(frozen=True, slots=True)
class AuthorityRequest:
    """What became of the request that cert-manager certify the authority's key. One of these holds, or nobody has asked yet."""

    asked: bool = True
    """Whether the request is there."""
    waits: str = ""
    """What it waits for, one line."""
    refused: str = ""
    """Why there is no certificate, and what to do, one line."""
    certificate: str = ""
    """The certificate, PEM, which fits the key."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Content of the Secret ``<federation>-server-tls``, without the key."""

    not_before: float
    not_after: float
    """Validity, seconds since the epoch."""
    names: tuple[str, ...]
    """DNS names and IP addresses in the certificate."""
    authority: str
    """The Secret's ``ca.pem``; if it is not the authority's, a new certificate is issued."""
    issuer: str = ""
    """SHA-256 of the public key of the authority that signed it, hexadecimal; empty where a version before this one did (``issuer``)."""


@dataclass(frozen=True, slots=True)
class TrackingLoginFacts:
    """Content of the Secret ``<federation>-tracking-login``."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Invitation:
    """Content of the Secret ``<silo>-enrolment``, without the token."""

    hash: str
    """SHA-256 of the one-time token, hexadecimal."""
    expires: float
    """Until when the token can be used, seconds since the epoch."""
    key: str = ""
    """SHA-256 of the public key (SubjectPublicKeyInfo, DER) that used the token, hexadecimal; empty until then."""
    next_key: str = ""
    """The same of the key that takes its place when the silo first shows it (``nextKey``); empty for none."""
    has_token: bool = False
    """Whether the Secret holds the plain token, as a managed silo's does."""
    not_after: float = 0.0
    """When the last certificate that was signed for it ends (``notAfter``), seconds since the epoch; 0 until then."""
    issuer: str = ""
    """SHA-256 of the public key of the authority that signed it (``issuer``), hexadecimal; empty until then."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The server's control endpoint did not respond."""

    reason: str
    """One CamelCase word, such as ``ConnectionRefused`` or ``Timeout``."""
    message: str
    """One line for people."""
    since: float
    """Time of the first failure after the last response, seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A federation and its objects, observed at one time."""

    namespace: str
    name: str
    """The reconcile key."""
    federation: Json | None = None
    """The Federation object (metadata with uid, generation, deletionTimestamp; spec; status); None where there is none."""
    silos: Mapping[str, Json] = field(default_factory=dict)
    """Every Silo object of the namespace whose ``spec.federation`` is `name`, by name."""
    children: Mapping[tuple[str, str], Json] = field(default_factory=dict)
    """Every object of `CHILD_KINDS` with the label ``anchorage.dev/federation: <name>`` and ``app.kubernetes.io/managed-by: anchorage-
    operator``."""
    pods: Sequence[Json] = ()
    """Every Pod with the label ``anchorage.dev/federation: <name>``, with its status."""
    refused_pods: Mapping[str, str] = field(default_factory=dict)
    """Why the API server refuses the pod of a StatefulSet, by the StatefulSet's name; only of those that lack theirs."""
    volume_failures: Mapping[str, str] = field(default_factory=dict)
    """Why volumes of a pod that does not start are not there, in the node's words, by the pod's name."""
    refused_changes: Mapping[str, str] = field(default_factory=dict)
    """Why the API server refuses a StatefulSet as it was planned last, by its name."""
    refused_objects: Mapping[str, str] = field(default_factory=dict)
    """Why the API server refuses other objects as they were planned last, by kind and name, such as ``Service derm-server``."""
    claims: Mapping[str, str] | None = None
    """Phase of every PersistentVolumeClaim of the namespace by name; None where it was not looked up."""
    claim_federations: Mapping[str, str] = field(default_factory=dict)
    """Federation of each of these claims that has the label ``anchorage.dev/federation``."""
    claim_sizes: Mapping[str, str] = field(default_factory=dict)
    """What each of these claims requests, such as ``20Gi``."""
    authority: AuthorityFacts | None = None
    """None where the Secret does not exist, has no certificate yet, or is damaged."""
    authority_damage: str = ""
    """What of that Secret cannot be used, one line; empty where all can."""
    authority_request: AuthorityRequest | None = None
    """None unless the authority's key waits for an issuer's certificate."""
    certificates_undone: str = ""
    """Why certificates or invitations could not be made as they were planned last; empty where they could."""
    server_certificate: CertificateFacts | None = None
    """None where the Secret does not exist, or the server could not use what it holds."""
    has_tracking_login: bool = False
    """Whether the Secret ``<federation>-tracking-login`` holds the user and password that the chart's MLflow takes."""
    invitations: Mapping[str, Invitation] = field(default_factory=dict)
    """By the silo's name; a silo without its Secret is left out."""
    report: FederationStatus | Unreachable | None = None
    """The server's own status; None where it was not asked, since no pod of it runs."""
    committed: bool = False
    """Whether a round was committed between the server's last two answers to this process; no other process's memory tells when one was."""
    members: Sequence[Member] | None = None
    """The members that the server has; None where it was not asked or did not answer."""
    requests: Sequence[CertificateRequest] = ()
    """Signing requests that wait at the server."""

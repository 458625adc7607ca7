"""The result of `plan`: objects to apply and delete, statuses, Events, and effects that need keys or the server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from anchorage.transport.kube.resources import Json
from anchorage.transport.server_client import Member
from anchorage_operator.settings import AuthorityIssuer


@dataclass(frozen=True, slots=True)
class Reference:
    """An object of the reconciled namespace."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event to post after its status was written."""

    about: Json
    """The object that it is about: ``apiVersion, kind, name, namespace, uid``, as ``involvedObject`` takes it."""
    type: Literal["Normal", "Warning"]
    """``Normal`` or ``Warning``."""
    reason: str
    """One CamelCase word."""
    message: str
    """At most 1024 bytes."""


@dataclass(frozen=True, slots=True)
class MakeAuthority:
    """Create the certificate authority and its Secret ``<federation>-authority`` (``ca.key``, ``ca.pem``); never replaces an existing one."""

    owner: Json | None
    """Owner reference of the Secret; None keeps it when the Federation is deleted."""
    labels: Json
    """Labels of the Secret."""
    certified: bool = True
    """Whether it certifies itself; else the Secret has only the key, which an issuer certifies."""


@dataclass(frozen=True, slots=True)
class RequestAuthority:
    """Ask an issuer of cert-manager to certify the authority's key."""

    issuer: AuthorityIssuer
    owner: Json
    labels: Json
    """Owner reference and labels of the request."""


@dataclass(frozen=True, slots=True)
class CertifyAuthority:
    """Write the certificate that an issuer signed into the authority's Secret (``ca.pem``)."""

    certificate: str
    """PEM."""


@dataclass(frozen=True, slots=True)
class OwnAuthority:
    """Set the owner of the authority's Secret, or remove it; set the labels and annotations by which nobody else prunes it."""

    owner: Json | None
    labels: Json


@dataclass(frozen=True, slots=True)
class ReplaceAuthority:
    """Make a new authority beside the present one and write both into the authority's Secret (`anchorage.transport.pki.succession`)."""

    origin: str
    """As of `AuthorityFacts`, which the Secret keeps."""


@dataclass(frozen=True, slots=True)
class DropFormerAuthority:
    """Take the former authority out of the authority's Secret: it is trusted no more."""


@dataclass(frozen=True, slots=True)
class MakeServerCertificate:
    """Create a key and a certificate for the server and write the Secret ``<federation>-server-tls``.

    It holds ``tls.key, tls.crt, ca.pem, issuer``, and ``endorsements.pem`` while there are two authorities.
    """

    names: tuple[str, ...]
    """DNS names and IP addresses."""
    owner: Json
    labels: Json
    """Owner reference and labels of the Secret."""
    former: bool = False
    """Whether the former of two authorities signs, which every silo trusts."""


@dataclass(frozen=True, slots=True)
class MakeTrackingLogin:
    """Write the federation's user and password at the chart's MLflow into the Secret ``<federation>-tracking-login``."""

    owner: Json
    labels: Json
    """Owner reference and labels of the Secret."""


@dataclass(frozen=True, slots=True)
class MakeInvitation:
    """Create a one-time token for a managed silo and write the Secret ``<silo>-enrolment`` (``token, hash, expires``; no ``key``)."""

    silo: str
    """The silo."""
    expires: float
    """Seconds since the epoch."""
    owner: Json
    labels: Json
    """Owner reference (the Silo) and labels of the Secret."""


@dataclass(frozen=True, slots=True)
class Sign:
    """Sign a request, then write ``key`` (for a renewal over another key ``nextKey``) and ``notAfter`` into the silo's enrolment Secret, then answer.

    The answer comes last: a crash before it leaves a used token that the same key may ask with again. Where signing fails for a
    mistake in the request, nothing is written and the answer is the catalogue's failure.
    """

    request: str
    """Its id."""
    silo: str
    csr: str = field(repr=False)
    key: str
    """As of `CertificateRequest`."""
    owner: Json
    """Owner reference (the Silo) that the Secret is given along with the key, so that it goes with the Silo."""
    renews: bool = False
    """Whether the silo has a certificate: of two authorities the new one signs then, else the former, which its invitation names."""


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """Write the new key of a silo, which the server has seen, in place of the former one into its enrolment Secret."""

    silo: str
    key: str
    """As of `CertificateRequest`."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Reject a request with a failure of the catalogue, after which the agent must not ask again."""

    request: str
    silo: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PutMembers:
    """Send the list of members to the server."""

    members: tuple[Member, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class GrowClaim:
    """Let a volume claim request more; where the API server refuses, an Event tells why, and it is tried again after a while."""

    name: str
    size: str
    """A quantity, such as ``40Gi``."""
    about: Json
    """The object whose volume it is, as an Event's."""


IdentityEffect = (
    MakeAuthority
    | RequestAuthority
    | CertifyAuthority
    | OwnAuthority
    | ReplaceAuthority
    | DropFormerAuthority
    | MakeServerCertificate
    | MakeTrackingLogin
    | MakeInvitation
    | ChangeKey
)
"""Effects that need keys, but those that answer requests."""
Effect = IdentityEffect | Sign | Refuse | PutMembers | GrowClaim


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in this order: effects, apply, delete, status, events; then reconcile again after `requeue_after` seconds.

    After any effect but `PutMembers`, `GrowClaim` and `Refuse` succeeded the federation is looked at again at once.
    """

    effects: tuple[Effect, ...] = ()
    """In their order; one that fails does not keep the rest of the plan back."""
    apply: tuple[Json, ...] = ()
    """Whole objects, in their order, for server-side apply with force as field manager ``anchorage-operator``. Only those that differ from
    what was observed."""
    delete: tuple[Reference, ...] = ()
    """Children that are no longer wanted; deleted with background propagation."""
    federation_status: Json | None = None
    """The operator's whole ``status`` of the Federation for server-side apply; None where it is as it should be."""
    silo_statuses: Mapping[str, Json] = field(default_factory=dict)
    """The same for Silo objects, by name; only those that differ. Each is meant for the resourceVersion that was observed, as a person may
    have approved or denied the silo since."""
    events: tuple[Event, ...] = ()
    """Transitions between the observed status and the new one."""
    requeue_after: float = 30.0
    """Seconds until the next look, if nothing wakes it before."""
    waits: bool = False
    """Whether pods wait to be replaced by those of the operator's version."""
    ripe: bool = False
    """Whether they wait only for the federation's turn."""

    @property
    def idle(self) -> bool:
        """Whether the plan contains no action."""
        parts = (self.effects, self.apply, self.delete, self.silo_statuses, self.events)
        return self.federation_status is None and not any(parts)

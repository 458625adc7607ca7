"""Everything that one reconcile of a federation looks at. The running part fills it in; `plan` reads nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anchorage.api.status import FederationStatus
from anchorage.transport.kube.resources import RESOURCES, Json
from anchorage.transport.server_client import CertificateRequest, Member

CHILD_KINDS: Mapping[str, str] = {
    kind: RESOURCES[kind].api_version
    for kind in ("StatefulSet", "Service", "ConfigMap", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget")
}
"""Kinds of the objects that the operator makes by server-side apply and watches, with their apiVersion."""


@dataclass(frozen=True, slots=True)
class AuthorityFacts:
    """What is known of the Secret ``<federation>-authority``.

    Parameters
    ----------
    certificate : str
        ``ca.pem``, which is public.
    not_after : float
        When the certificate ends, seconds since the epoch.
    owned : bool
        Whether the Secret has the Federation as its owner, and so goes with it.
    """

    certificate: str
    not_after: float
    owned: bool = False


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What is known of the Secret ``<federation>-server-tls``.

    Parameters
    ----------
    not_before, not_after : float
        Validity, seconds since the epoch.
    names : tuple of str
        DNS names and IP addresses in the certificate.
    authority : str
        The Secret's ``ca.pem``; where it is not the authority's, the certificate is made again.
    """

    not_before: float
    not_after: float
    names: tuple[str, ...]
    authority: str


@dataclass(frozen=True, slots=True)
class Invitation:
    """What is known of the Secret ``<silo>-enrolment``.

    Parameters
    ----------
    hash : str
        SHA-256 of the one-time token, hexadecimal.
    expires : float
        Until when the token can be used, seconds since the epoch.
    key : str
        SHA-256 of the public key (SubjectPublicKeyInfo, DER) that used the token, hexadecimal; empty until then.
    has_token : bool
        Whether the Secret holds the plain token, as a managed silo's does.
    not_after : float
        When the last certificate that was signed for it ends (``notAfter``), seconds since the epoch; 0 until then.
    """

    hash: str
    expires: float
    key: str = ""
    has_token: bool = False
    not_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The server's control endpoint did not answer.

    Parameters
    ----------
    reason : str
        One CamelCase word, such as ``ConnectionRefused`` or ``Timeout``.
    message : str
        One line for people.
    since : float
        First failure after the last answer, seconds since the epoch.
    """

    reason: str
    message: str
    since: float


@dataclass(frozen=True, slots=True)
class Observed:
    """One federation and what belongs to it, read at one time.

    Parameters
    ----------
    namespace, name : str
        The reconcile key.
    federation : Json or None
        The Federation object (metadata with uid, generation, deletionTimestamp; spec; status); None where there is none.
    silos : mapping of str to Json
        Every Silo object of the namespace whose ``spec.federation`` is `name`, by name.
    children : mapping of (kind, name) to Json
        Every object of `CHILD_KINDS` with the label ``anchorage.dev/federation: <name>`` and
        ``app.kubernetes.io/managed-by: anchorage-operator``.
    pods : sequence of Json
        Every Pod with the label ``anchorage.dev/federation: <name>``, with its status.
    claims : mapping of str to str, or None
        Phase of every PersistentVolumeClaim of the namespace by name; None where it was not looked up.
    authority : AuthorityFacts or None
        None where the Secret does not exist.
    server_certificate : CertificateFacts or None
        None where the Secret does not exist.
    invitations : mapping of str to Invitation
        By the silo's name; a silo without its Secret is left out.
    report : FederationStatus, Unreachable or None
        The server's own status; None where it was not asked, since no pod of it runs.
    members : sequence of Member, or None
        The members that the server has; None where it was not asked or did not answer.
    requests : sequence of Request
        Signing requests that wait at the server.
    """

    namespace: str
    name: str
    federation: Json | None = None
    silos: Mapping[str, Json] = field(default_factory=dict)
    children: Mapping[tuple[str, str], Json] = field(default_factory=dict)
    pods: Sequence[Json] = ()
    claims: Mapping[str, str] | None = None
    authority: AuthorityFacts | None = None
    server_certificate: CertificateFacts | None = None
    invitations: Mapping[str, Invitation] = field(default_factory=dict)
    report: FederationStatus | Unreachable | None = None
    members: Sequence[Member] | None = None
    requests: Sequence[CertificateRequest] = ()

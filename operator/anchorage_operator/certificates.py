"""The certificate authority and the server's certificate: when they are created, renewed and replaced, and when to warn.

A new authority takes the place of another in steps, each decided by what is there: both are trusted, and the former signs for the server;
when every silo has a certificate of the new one, and the annotation that asked for it is gone, the new one signs for the server; when the server
shows that certificate, the former authority is dropped.
"""

from collections.abc import Iterator

from anchorage.api.status import timestamp
from anchorage.transport.kube.resources import NEW_AUTHORITY, Json
from anchorage.transport.pki.authority import BACKDATED
from anchorage_operator import reasons
from anchorage_operator.addresses import certificate_names
from anchorage_operator.conditions import Finding
from anchorage_operator.membership import approval
from anchorage_operator.names import authority_labels, owner_reference, server_labels
from anchorage_operator.observed import AuthorityFacts, CertificateFacts
from anchorage_operator.planned import (
    CertifyAuthority,
    DropFormerAuthority,
    Effect,
    MakeAuthority,
    MakeServerCertificate,
    OwnAuthority,
    ReplaceAuthority,
    RequestAuthority,
)
from anchorage_operator.situation import Situation

WARN_SECONDS = 90 * 86_400.0
"""How long before its end the authority is warned of."""
OVERDUE_SECONDS = 86_400.0
"""How long a renewal may be late before it is warned of."""
NEW_ONE = "begin with a new authority (docs/operations.md)"
SHOWN_SECONDS = BACKDATED.total_seconds() + 180.0
"""How long after the beginning of its validity the server shows a certificate: nodes look for changed Secrets once in a minute or two."""


def renewal_time(certificate: CertificateFacts) -> float:
    """Return when a certificate is renewed: after two thirds of its life, seconds since the epoch."""
    return certificate.not_before + (certificate.not_after - certificate.not_before) * 2 / 3


def certificate_effects(situation: Situation) -> Iterator[Effect]:
    """Yield the certificates to create; the server's follows the authority's at the next reconcile."""
    observed, spec = situation.observed, situation.spec
    if spec is None:
        return
    owner, labels = owner_reference(situation.federation), server_labels(observed.name)
    authority_owner = owner if spec.deletion_policy == "Delete" else None
    authority, certificate = observed.authority, observed.server_certificate
    if observed.authority_damage:
        return
    if authority is None:
        yield from _new_authority(situation, authority_owner)
        return
    if authority.owned != (authority_owner is not None) or not authority.is_retained:
        yield OwnAuthority(authority_owner, authority_labels(observed.name))
    if asks_for_another(situation) and not authority.former_key and situation.settings.authority_issuer is None:
        yield ReplaceAuthority(authority.origin)
        return
    if situation.now >= authority.not_after:
        return  # it could sign nothing
    names, former = certificate_names(observed, spec, situation.settings), former_signs(situation, authority)
    if (
        certificate is None
        or certificate.authority != authority.certificate
        or set(certificate.names) != set(names)
        or situation.now >= renewal_time(certificate)
        or (authority.former_key and certificate.issuer != (authority.former_key if former else authority.key))
    ):
        yield MakeServerCertificate(names, owner, labels, former)
    elif authority.former_key and not former and situation.now >= certificate.not_before + SHOWN_SECONDS:
        yield DropFormerAuthority()


def asks_for_another(situation: Situation) -> bool:
    """Return whether somebody asks for a new authority beside the present one."""
    return NEW_AUTHORITY in situation.federation.get("metadata", {}).get("annotations", {})


def former_signs(situation: Situation, authority: AuthorityFacts) -> bool:
    """Return whether the former of two authorities signs for the server: it is asked for, or a silo has no certificate of the new one."""
    return bool(authority.former_key) and (asks_for_another(situation) or bool(without_new(situation, authority)))


def without_new(situation: Situation, authority: AuthorityFacts) -> list[str]:
    """Return the approved silos whose last certificate the new authority did not sign, and whom dropping the former one would shut out."""
    names_without = []
    for name, silo in situation.silos.items():
        invitation = situation.observed.invitations.get(name)
        if (
            invitation
            and invitation.key
            and invitation.issuer != authority.key
            and approval(situation, silo).finding.holds
        ):
            names_without.append(name)
    return names_without


def _new_authority(situation: Situation, owner: Json | None) -> Iterator[Effect]:
    """Yield the next step on the way to an authority; with an issuer it is a key, a request, the answer to it."""
    observed, issuer = situation.observed, situation.settings.authority_issuer
    request, labels = observed.authority_request, authority_labels(observed.name)
    if request is None:
        yield MakeAuthority(owner, labels, certified=issuer is None)
    elif request.certificate:
        yield CertifyAuthority(request.certificate)
    elif not request.asked and issuer is not None:
        yield RequestAuthority(issuer, owner_reference(situation.federation), labels)


def certificates_valid(situation: Situation) -> Finding:
    """Return the condition CertificatesValid."""
    authority, certificate, now = situation.observed.authority, situation.observed.server_certificate, situation.now
    request = situation.observed.authority_request
    if request is not None and request.refused:
        return Finding("False", reasons.AUTHORITY_NOT_ISSUED, request.refused)
    if request is not None and request.waits:
        return Finding("False", reasons.CERTIFICATES_PENDING, request.waits)
    if situation.observed.authority_damage:
        return Finding("False", reasons.AUTHORITY_DAMAGED, situation.observed.authority_damage)
    if authority is not None and now >= authority.not_after:
        ended = f"the certificate authority's certificate expired at {timestamp(authority.not_after)}"
        return Finding("False", reasons.CERTIFICATE_EXPIRED, f"{ended}; it signs nothing any more: {NEW_ONE}")
    if authority is None or certificate is None:
        undone = situation.observed.certificates_undone
        state = f"the certificates cannot be created: {undone}" if undone else "the certificates are being created"
        return Finding("False", reasons.CERTIFICATES_PENDING, state)
    if now >= certificate.not_after:
        ended = f"the server's certificate expired at {timestamp(certificate.not_after)}"
        return Finding("False", reasons.CERTIFICATE_EXPIRED, ended)
    if now >= renewal_time(certificate) + OVERDUE_SECONDS:
        message = f"the server's certificate expires at {timestamp(certificate.not_after)} and was not renewed in time"
        return Finding("True", reasons.CERTIFICATE_EXPIRING, message)
    if now >= authority.not_after - WARN_SECONDS:
        message = f"the certificate authority's certificate expires at {timestamp(authority.not_after)}"
        return Finding("True", reasons.CERTIFICATE_EXPIRING, message)
    if authority.former_key:
        return Finding("True", reasons.AUTHORITY_CHANGES, _progress(situation, authority))
    message = f"the server's certificate is valid until {timestamp(certificate.not_after)}"
    if asks_for_another(situation):
        message += "; an authority that cert-manager certified is not replaced beside the present one"
    return Finding("True", reasons.CERTIFICATES_VALID, message)


def _progress(situation: Situation, authority: AuthorityFacts) -> str:
    """Return what the change to a new authority waits for."""
    waiting = without_new(situation, authority)
    if waiting:
        shown = ", ".join(waiting[:5]) + (f" and {len(waiting) - 5} others" if len(waiting) > 5 else "")
        return f"two authorities are trusted; without a certificate of the new one: {shown}"
    if asks_for_another(situation):
        command = f"fedctl authority finish {situation.observed.name}"
        return f"two authorities are trusted; every silo has a certificate of the new one, so go on with {command}"
    return "the former authority is dropped when the server shows a certificate of the new one"


def certificate_times(situation: Situation) -> Iterator[float]:
    """Yield the times at which the certificates' state will change, seconds since the epoch."""
    authority, certificate = situation.observed.authority, situation.observed.server_certificate
    if authority is not None:
        yield from (authority.not_after - WARN_SECONDS, authority.not_after)
    if certificate is not None:
        yield from (renewal_time(certificate), certificate.not_after)
        if authority is not None and authority.former_key:
            yield certificate.not_before + SHOWN_SECONDS

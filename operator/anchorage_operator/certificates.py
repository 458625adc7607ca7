"""The certificate authority and the server's certificate: when they are created and renewed, and when to warn."""

from collections.abc import Iterator

from anchorage.api.status import timestamp
from anchorage.transport.kube.resources import Json
from anchorage_operator import reasons
from anchorage_operator.addresses import certificate_names
from anchorage_operator.conditions import Finding
from anchorage_operator.names import authority_labels, owner_reference, server_labels
from anchorage_operator.observed import CertificateFacts
from anchorage_operator.planned import (
    CertifyAuthority,
    Effect,
    MakeAuthority,
    MakeServerCertificate,
    OwnAuthority,
    RequestAuthority,
)
from anchorage_operator.situation import Situation

WARN_SECONDS = 90 * 86_400.0
"""How long before its end the authority is warned of."""
OVERDUE_SECONDS = 86_400.0
"""How long a renewal may be late before it is warned of."""


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
    if authority is None:
        yield from _new_authority(situation, authority_owner)
        return
    if authority.owned != (authority_owner is not None) or not authority.kept:
        yield OwnAuthority(authority_owner, authority_labels(observed.name))
    names = certificate_names(observed, spec, situation.settings)
    if (
        certificate is None
        or certificate.authority != authority.certificate
        or set(certificate.names) != set(names)
        or situation.now >= renewal_time(certificate)
    ):
        yield MakeServerCertificate(names, owner, labels)


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
    if authority is None or certificate is None:
        return Finding("False", reasons.CERTIFICATES_PENDING, "the certificates are being created")
    ends = {"the certificate authority's": authority.not_after, "the server's": certificate.not_after}
    for whose, end in ends.items():
        if now >= end:
            return Finding("False", reasons.CERTIFICATE_EXPIRED, f"{whose} certificate expired at {timestamp(end)}")
    if now >= renewal_time(certificate) + OVERDUE_SECONDS:
        message = f"the server's certificate expires at {timestamp(certificate.not_after)} and was not renewed in time"
        return Finding("True", reasons.CERTIFICATE_EXPIRING, message)
    if now >= authority.not_after - WARN_SECONDS:
        message = f"the certificate authority's certificate expires at {timestamp(authority.not_after)}"
        return Finding("True", reasons.CERTIFICATE_EXPIRING, message)
    return Finding(
        "True",
        reasons.CERTIFICATES_VALID,
        f"the server's certificate is valid until {timestamp(certificate.not_after)}",
    )


def certificate_times(situation: Situation) -> Iterator[float]:
    """Yield the times at which the certificates' state will change, seconds since the epoch."""
    authority, certificate = situation.observed.authority, situation.observed.server_certificate
    if authority is not None:
        yield from (authority.not_after - WARN_SECONDS, authority.not_after)
    if certificate is not None:
        yield from (renewal_time(certificate), certificate.not_after)

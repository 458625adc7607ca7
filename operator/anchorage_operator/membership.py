"""Membership: approval, invitations, signing requests, and the list of members for the server."""

from collections.abc import Iterator
from dataclasses import dataclass

from anchorage.api.errors import Failure
from anchorage.api.errors.identity import (
    NOT_APPROVED,
    REQUEST_REFUSED,
    TOKEN_EXPIRED,
    TOKEN_OF_ANOTHER_SILO,
    TOKEN_UNKNOWN,
    TOKEN_USED,
)
from anchorage.api.status import ConditionType, timestamp
from anchorage.transport.kube.resources import Json
from anchorage.transport.server_client import CertificateRequest, Member
from anchorage_operator import reasons
from anchorage_operator.conditions import Finding, find
from anchorage_operator.names import AUTHORITY_HASH, agent_labels, agent_name, enrolment_name, owner_reference
from anchorage_operator.observed import Invitation
from anchorage_operator.planned import ChangeKey, Effect, MakeInvitation, PutMembers, Reference, Refuse, Sign
from anchorage_operator.situation import Situation

INVITATION_SECONDS = 7 * 86_400.0
"""How long the token of a managed silo's pod can be used; it is replaced before its end."""
REPLACED_SECONDS = 86_400.0
"""How long before its end."""

OWN_REASONS = (reasons.MANAGED, reasons.APPROVED_IN_ADVANCE, reasons.PENDING_APPROVAL)
"""Reasons of Approved that the operator gives; any other one is a person's decision."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Whether a silo may be a member."""

    finding: Finding
    """What the condition Approved says."""
    by_person: bool
    """Whether a person decided: the operator then leaves the condition alone."""


def is_managed(silo: Json) -> bool:
    """Whether the silo's agent runs in this cluster."""
    return silo["spec"].get("managed") is not None


def approval(situation: Situation, silo: Json) -> Approval:
    """Return whether a silo may be a member, and who decided."""
    if is_managed(silo):
        return Approval(Finding("True", reasons.MANAGED), False)
    decided = find(silo.get("status") or {}, ConditionType.APPROVED)
    if decided is not None and decided.reason not in OWN_REASONS and decided.status != "Unknown":
        return Approval(decided, True)
    spec = situation.spec
    if spec is not None and (
        spec.admission.approval == "Automatic" or silo["metadata"]["name"] in spec.admission.silos
    ):
        return Approval(Finding("True", reasons.APPROVED_IN_ADVANCE), False)
    return Approval(Finding("Unknown", reasons.PENDING_APPROVAL, "waiting for `fedctl silo approve` or `deny`"), False)


def members(situation: Situation) -> tuple[Member, ...]:
    """Return the silos that the server admits: approved ones with a signed certificate, sorted by name.

    None while its volume lacks committed rounds, so that it trains nothing over again.
    """
    if situation.lost_state:
        return ()
    roster = []
    for name, silo in situation.silos.items():
        invitation = situation.observed.invitations.get(name)
        if invitation is not None and invitation.key and approval(situation, silo).finding.holds:
            labels, key = str(silo["spec"].get("labels", "None")), invitation.next_key
            shown = _shows_next_key(situation, name, invitation)
            roster.append(Member(name, labels, key) if shown else Member(name, labels, invitation.key, key))
    return tuple(roster)


def _shows_next_key(situation: Situation, name: str, invitation: Invitation) -> bool:
    """Return whether the server has seen a silo's next key, which it then takes for its key."""
    if not invitation.next_key:
        return False
    return any(m.name == name and m.key == invitation.next_key for m in situation.observed.members or ())


def membership_effects(situation: Situation) -> Iterator[Effect]:
    """Yield invitations for managed silos, answers to requests, and the list of members if the server has another one."""
    observed = situation.observed
    if observed.authority is None or observed.federation is None:
        return
    for name, silo in situation.silos.items():
        if name in situation.verdict.silos and is_managed(silo) and _wants_invitation(situation, name):
            labels = agent_labels(observed.name, name)
            yield MakeInvitation(name, situation.now + INVITATION_SECONDS, owner_reference(silo), labels)
    for name, invitation in observed.invitations.items():
        if _shows_next_key(situation, name, invitation):
            yield ChangeKey(name, invitation.next_key)
    for request in observed.requests:
        yield from _answer(situation, request)
    wanted = members(situation)
    if observed.members is not None and set(observed.members) != set(wanted):
        yield PutMembers(wanted, situation.generation)


def leftovers_of_lost_authority(situation: Situation) -> Iterator[Reference]:
    """Yield the objects of a managed silo that belong to a lost certificate authority: its agent (with its volume) and its invitation."""
    authority = situation.observed.authority
    for name, silo in situation.silos.items():
        child = situation.observed.children.get(("StatefulSet", agent_name(name)))
        if authority is None or child is None or not is_managed(silo):
            continue
        known = child["metadata"].get("annotations", {}).get(AUTHORITY_HASH)
        if known is not None and known != authority.origin:
            yield Reference("apps/v1", "StatefulSet", agent_name(name))
            yield Reference("v1", "Secret", enrolment_name(name))


def _wants_invitation(situation: Situation, name: str) -> bool:
    """Return whether a managed silo needs a new token, for example because its volume with the key was lost."""
    invitation = situation.observed.invitations.get(name)
    if invitation is None or not invitation.has_token:
        return True
    if invitation.key:
        return situation.agent_pod(name).reason == TOKEN_USED.reason
    return invitation.expires - situation.now < REPLACED_SECONDS


def _answer(situation: Situation, request: CertificateRequest) -> Iterator[Effect]:
    """Yield the answer to a request; nothing while the silo is neither approved nor denied."""
    silo, invitation = situation.silos.get(request.silo), situation.observed.invitations.get(request.silo)
    refused = _refusal(situation, request, silo, invitation)
    if refused is not None:
        failure, message = refused
        yield Refuse(request.id, request.silo, failure.code, message)
    elif silo is not None and invitation is not None and approval(situation, silo).finding.holds:
        owner = owner_reference(silo)
        renews = request.kind == "Renew"
        yield Sign(request.id, request.silo, request.csr, request.key, owner, renews)


def _refusal(
    situation: Situation, request: CertificateRequest, silo: Json | None, invitation: Invitation | None
) -> tuple[Failure, str] | None:
    if silo is None:
        return TOKEN_UNKNOWN, f"federation {situation.observed.name} has no silo {request.silo}"
    if not request.key:
        return REQUEST_REFUSED, "the signing request cannot be read"
    decided = approval(situation, silo)
    if decided.finding.status == "False":
        return NOT_APPROVED, f"silo {request.silo} was denied"
    if request.kind == "Renew":
        if invitation is None or not invitation.key:
            return NOT_APPROVED, f"silo {request.silo} has no certificate of this federation"
        return None  # over another key, too: the server asks for who has shown the present one
    if invitation is None:
        managed = is_managed(silo)
        return None if managed else (TOKEN_UNKNOWN, f"silo {request.silo} has no invitation; ask for a new one")
    return _token_refusal(situation, request, invitation)


def _token_refusal(
    situation: Situation, request: CertificateRequest, invitation: Invitation
) -> tuple[Failure, str] | None:
    if request.token_hash != invitation.hash:
        others = situation.observed.invitations.items()
        owner = next((name for name, other in others if other.hash == request.token_hash), None)
        if owner is not None:
            return TOKEN_OF_ANOTHER_SILO, f"the token was not issued for silo {request.silo}"
        return TOKEN_UNKNOWN, f"the token is not the latest one of silo {request.silo}"
    if invitation.key and invitation.key != request.key:
        return TOKEN_USED, f"the token of silo {request.silo} was used with another key"
    if not invitation.key and situation.now >= invitation.expires:
        return TOKEN_EXPIRED, f"the token of silo {request.silo} expired at {timestamp(invitation.expires)}"
    return None

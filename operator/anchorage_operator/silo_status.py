"""The status of a Silo: its conditions, and what the server reports about it."""

from typing import Any

from anchorage.api.status import MOMENTARY, ConditionType, SiloReport, SiloStatus, marked_fields, timestamp
from anchorage.transport.kube.resources import Json
from anchorage_operator import reasons
from anchorage_operator.conditions import Finding, Findings, conditions, find, join_names
from anchorage_operator.membership import Approval, approval, is_managed
from anchorage_operator.names import agent_name
from anchorage_operator.observed import Invitation
from anchorage_operator.situation import Situation
from anchorage_operator.volumes import volume_note

REPORTED = tuple(str(field.alias) for field in SiloReport.model_fields.values())
"""Fields that the server reports."""
LASTING = tuple(name for name in REPORTED if name not in marked_fields(MOMENTARY))
"""Fields that are kept for a silo that the server no longer reports, and for every silo while no server runs."""


def silo_status(situation: Situation, name: str, federation: Findings) -> dict[str, Any]:
    """Return the whole status of a silo, except an approval given by a person.

    Parameters
    ----------
    situation : Situation
        The federation.
    name : str
        The silo.
    federation : mapping of ConditionType to Finding
        The Federation's conditions; empty where there is no Federation.
    """
    silo = situation.silos[name]
    before: Json = silo.get("status") or {}
    decided = approval(situation, silo)
    reported = _report_of(situation, name)
    findings = silo_findings(situation, name, decided, reported, federation)
    if decided.by_person:
        del findings[ConditionType.APPROVED]
    generation = int(silo["metadata"].get("generation", 0))
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions(findings, before.get("conditions", ()), generation=generation, now=situation.now),
        "role": "Managed" if is_managed(silo) else "Remote",
    }
    if reported is not None:
        values = reported.model_dump(mode="json", by_alias=True, exclude_none=True)
        status |= {key: values[key] for key in REPORTED if key in values}
    else:
        carried_fields = REPORTED if situation.report is None and not situation.server_away else LASTING
        status |= {key: before[key] for key in carried_fields if key in before}
    invitation = situation.observed.invitations.get(name)
    if invitation is not None and invitation.key:
        end = {"notAfter": timestamp(invitation.not_after)} if invitation.not_after else {}
        status["certificate"] = {"key": invitation.key, **end}
    return status


def silo_findings(
    situation: Situation, name: str, decided: Approval, reported: SiloStatus | None, federation: Findings
) -> dict[ConditionType, Finding]:
    """Return the silo's conditions in the order in which they are shown."""
    silo = situation.silos[name]
    accepted = _accepted_condition(situation, name)
    enrolled = _enrolled_condition(situation, silo, decided.finding)
    findings = {ConditionType.ACCEPTED: accepted, ConditionType.APPROVED: decided.finding}
    if is_managed(silo):
        findings[ConditionType.AGENT_AVAILABLE] = _agent_available(situation, name, accepted)
    findings[ConditionType.ENROLLED] = enrolled
    before = find(silo.get("status") or {}, ConditionType.CONNECTED)
    server = federation.get(ConditionType.SERVER_AVAILABLE)
    unheard = situation.report is None and server is not None and server.holds
    findings[ConditionType.CONNECTED] = (
        before if unheard and before is not None else _connected_condition(situation, reported, enrolled, server)
    )
    findings[ConditionType.READY] = _ready(findings)
    return findings


def _report_of(situation: Situation, name: str) -> SiloStatus | None:
    report = situation.report
    return next((each for each in report.silos if each.name == name), None) if report is not None else None


def _accepted_condition(situation: Situation, name: str) -> Finding:
    if situation.observed.federation is None:
        message = f"Federation {situation.observed.name} does not exist in namespace {situation.observed.namespace}"
        return Finding("False", reasons.FEDERATION_NOT_FOUND, message)
    refusal = situation.verdict.refused.get(name)
    if refusal:
        return Finding("False", refusal.reason, refusal.message)
    silo = situation.verdict.silos.get(name)
    managed = silo.spec.managed if silo is not None else None
    note = volume_note(situation, agent_name(name), managed.storage, "spec.managed.storage") if managed else ""
    notes = [note, situation.refused_change(agent_name(name)) if managed else ""]
    return Finding("True", reasons.ACCEPTED, "; ".join(filter(None, notes)))


def _enrolled_condition(situation: Situation, silo: Json, approved: Finding) -> Finding:
    name = str(silo["metadata"]["name"])
    invitation = situation.observed.invitations.get(name)
    if approved.status == "False":
        return Finding("False", reasons.DENIED, approved.message or "the silo was denied")
    if invitation is None or (is_managed(silo) and not invitation.key):
        words = (
            "the agent enrols automatically once its pod is running"
            if is_managed(silo)
            else "the silo has not been invited yet"
        )
        return Finding("False", reasons.STARTING if is_managed(silo) else reasons.NOT_INVITED, words)
    if invitation.key:
        return _signed_condition(situation, invitation)
    asking = {request.key for request in situation.observed.requests if request.silo == name}
    if not approved.holds and asking:
        message = f"the silo requests enrolment with key {join_names(asking)} and waits for `fedctl silo approve`"
        return Finding("False", reasons.PENDING_APPROVAL, message)
    end = timestamp(invitation.expires)
    if situation.now >= invitation.expires:
        return Finding("False", reasons.INVITATION_EXPIRED, f"the invitation expired at {end}")
    return Finding("False", reasons.INVITED, f"the invitation is valid until {end}")


def _signed_condition(situation: Situation, invitation: Invitation) -> Finding:
    if not invitation.not_after:
        return Finding("True", reasons.CERTIFICATE_SIGNED)
    end = timestamp(invitation.not_after)
    if situation.now >= invitation.not_after:
        return Finding("False", reasons.CERTIFICATE_EXPIRED, f"the certificate expired at {end}")
    return Finding("True", reasons.CERTIFICATE_SIGNED, f"the certificate is valid until {end}")


def _agent_available(situation: Situation, name: str, accepted: Finding) -> Finding:
    if situation.observed.federation is None:
        return Finding("False", accepted.reason, accepted.message)
    if situation.spec is None:
        return Finding("False", reasons.FEDERATION_NOT_ACCEPTED, "the Federation's spec was never accepted")
    if situation.finished:
        return Finding("False", reasons.SUCCEEDED, "training has finished; the agent's pod is no longer needed")
    if not situation.agents_wanted:
        reason = reasons.SUSPENDED if situation.suspended else reasons.HALTED
        return Finding("False", reason, "the agent's pod is stopped")
    if (refused := situation.refused_object(agent_name(name))) is not None:
        return refused
    if not situation.is_made(agent_name(name)):
        return Finding("False", reasons.STARTING, "its objects are being created")
    pod = situation.agent_pod(name)
    if pod.ready:
        return Finding("True", reasons.AVAILABLE)
    return Finding("False", pod.reason, pod.message)


def _connected_condition(
    situation: Situation, reported: SiloStatus | None, enrolled: Finding, server: Finding | None
) -> Finding:
    if situation.finished:
        return Finding("False", reasons.SUCCEEDED, "training has finished")
    if server is None:
        return Finding("False", reasons.FEDERATION_NOT_FOUND)
    if reported is not None and reported.connected:
        return Finding("True", reasons.CONNECTED)
    if server.reason in (reasons.SUSPENDED, reasons.HALTED, reasons.FEDERATION_NOT_ACCEPTED, reasons.STATE_LOST):
        return Finding("False", server.reason, server.message)
    if not enrolled.holds:
        return Finding("False", enrolled.reason, enrolled.message)
    if server.reason == reasons.SERVER_UNREACHABLE:
        return Finding("Unknown", server.reason, "the server does not respond to the operator")
    if not server.holds:
        return Finding("False", reasons.SERVER_UNAVAILABLE, f"the server is not running ({server.reason})")
    message = reported.message if reported is not None and reported.message else "the agent is not connected"
    return Finding("False", reasons.NOT_CONNECTED, message)


def _ready(findings: Findings) -> Finding:
    """Summarise the conditions: the first one that is not true gives the reason; a problem of the agent's pod precedes the missing connection."""
    if findings[ConditionType.ACCEPTED].holds and findings[ConditionType.CONNECTED].holds:
        return Finding("True", reasons.CONNECTED)
    broken = next(finding for finding in findings.values() if not finding.holds)
    return Finding("False", broken.reason, broken.message)

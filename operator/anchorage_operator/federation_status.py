"""The conditions of a Federation."""

from anchorage.api.errors import CATALOGUE
from anchorage.api.errors.rounds import QUORUM_LOST, STOPPED
from anchorage.api.status import Condition, ConditionType
from anchorage.methods.cautions import cautions
from anchorage_operator import reasons
from anchorage_operator.certificates import certificates_valid
from anchorage_operator.conditions import Finding, Findings, join_names
from anchorage_operator.in_use import CLUSTER_ONLY
from anchorage_operator.membership import approval, is_managed
from anchorage_operator.names import authority_name, public_name, server_name
from anchorage_operator.observed import Unreachable
from anchorage_operator.situation import Situation
from anchorage_operator.tracking import tracking_note
from anchorage_operator.volumes import volume_note

UNREACHABLE_SECONDS = 10.0
"""How long a server that was available may be silent before that shows."""


_QUIET_AT_THE_END = (
    reasons.STARTING,
    reasons.RESTARTING,
    reasons.TERMINATING,
    reasons.POD_MISSING,
    reasons.SERVER_UNREACHABLE,
)
"""Reasons of a server that is away for a moment, as while its pod is replaced by one that only keeps the results."""


def federation_findings(situation: Situation) -> dict[ConditionType, Finding]:
    """Return the Federation's conditions in the order in which they are shown."""
    accepted = _accepted_condition(situation)
    certificates = certificates_valid(situation)
    server = _server_available(situation)
    quorum = _quorum_met(situation, server)
    open_reason = reasons.TRAINING if quorum.holds or has_begun(situation) else reasons.WAITING
    if situation.finished:
        open_reason = reasons.STORING_RESULTS
    failed = _failed_condition(situation, open_reason)
    succeeded = _succeeded_condition(situation, failed, open_reason)
    findings = {
        ConditionType.ACCEPTED: accepted,
        ConditionType.CERTIFICATES_VALID: certificates,
        ConditionType.SERVER_AVAILABLE: server,
        ConditionType.QUORUM_MET: quorum,
    }
    findings[ConditionType.READY] = _ready(situation, findings, succeeded, failed)
    tracked = _tracked_condition(situation)
    return (
        findings
        | {ConditionType.SUCCEEDED: succeeded, ConditionType.FAILED: failed}
        | ({ConditionType.TRACKED: tracked} if tracked is not None else {})
    )


def has_begun(situation: Situation) -> bool:
    """Whether enough silos for a round were ever connected."""
    report, before = situation.report, situation.finding(ConditionType.SUCCEEDED)
    committed = bool(situation.status.get("round")) or (report is not None and report.round > 0)
    return committed or (before is not None and before.reason == reasons.TRAINING)


def reported_condition(situation: Situation, kind: ConditionType) -> Condition | None:
    """Return a condition that the server itself reports."""
    report = situation.report
    return next((each for each in report.conditions if each.type == kind), None) if report is not None else None


def _accepted_condition(situation: Situation) -> Finding:
    refusal = situation.verdict.refusal
    if refusal is not None:
        return Finding("False", refusal.reason, refusal.message)
    refused = situation.verdict.refused
    notes = [f"silos that are not accepted: {join_names(refused)}"] if refused else []
    if situation.spec is not None:
        name, storage = server_name(situation.observed.name), situation.spec.server.storage
        notes += [volume_note(situation, name, storage, "spec.server.storage"), situation.refused_change(name)]
        notes.append(tracking_note(situation))
    if (federation := situation.verdict.federation) is not None:
        notes += cautions(federation, [*situation.verdict.silos.values()])
    return Finding("True", reasons.ACCEPTED, "; ".join(filter(None, notes)))


def _server_available(situation: Situation) -> Finding:
    if situation.spec is None:
        return Finding(
            "False", reasons.FEDERATION_NOT_ACCEPTED, "no objects were created because the spec is not accepted"
        )
    if situation.suspended:
        return Finding("False", reasons.SUSPENDED, "spec.suspend is true")
    if situation.stopped:
        results_note = "; its rounds and last model can be read" if situation.keeps_results else ""
        return Finding("False", reasons.HALTED, f"training failed; any change of the spec restarts it{results_note}")
    if situation.report is not None:
        return Finding("True", reasons.AVAILABLE)
    name = situation.observed.name
    if (refused := situation.refused_object(server_name(name), public_name(name), authority_name(name))) is not None:
        return refused
    if not situation.is_made(server_name(situation.observed.name)):
        return Finding("False", reasons.STARTING, "its objects are being created")
    pod, unreachable = situation.server_pod, situation.observed.report
    if situation.lost_state and not pod.trouble:
        return Finding("False", reasons.STATE_LOST, situation.lost_state)
    if not pod.ready:
        return Finding("False", pod.reason, pod.message)
    if not isinstance(unreachable, Unreachable) or situation.now - unreachable.since < UNREACHABLE_SECONDS:
        before = situation.finding(ConditionType.SERVER_AVAILABLE)
        return (
            before
            if before is not None and before.holds
            else Finding("False", reasons.STARTING, "the server has not responded yet")
        )
    return Finding("False", reasons.SERVER_UNREACHABLE, f"{unreachable.reason}: {unreachable.message}")


def _quorum_met(situation: Situation, server: Finding) -> Finding:
    if situation.finished:
        return Finding("True", reasons.SUCCEEDED, "all rounds are committed")
    if server.reason in (reasons.SUSPENDED, reasons.HALTED, reasons.FEDERATION_NOT_ACCEPTED, reasons.STATE_LOST):
        return Finding("False", server.reason, server.message)
    if server.reason == QUORUM_LOST.reason:
        return Finding("False", server.reason, _missing(situation) or server.message)
    report, spec = situation.report, situation.spec
    before = situation.finding(ConditionType.QUORUM_MET)
    if report is None or spec is None:
        return before if server.holds and before is not None else Finding("Unknown", reasons.SERVER_UNAVAILABLE)
    needed = spec.protocol.min_silos
    if report.connected_silos >= needed:
        condition = reported_condition(situation, ConditionType.QUORUM_MET)
        if condition is None or condition.status != "False":
            return Finding("True", reasons.QUORUM_MET)
        return Finding("False", condition.reason, condition.message)
    lost = before is not None and (before.holds or before.reason == QUORUM_LOST.reason)
    reason = QUORUM_LOST.reason if lost else reasons.WAITING_FOR_SILOS
    return Finding(
        "False", reason, f"{report.connected_silos} of {needed} required silos are connected; {_missing(situation)}"
    )


def _missing(situation: Situation) -> str:
    """List the silos that are not connected; for managed ones with the reason."""
    report = situation.report
    connected = {silo.name for silo in report.silos if silo.connected} if report is not None else set()
    words = []
    for name, silo in situation.silos.items():
        if name in connected or approval(situation, silo).finding.status == "False":
            continue
        pod = situation.agent_pod(name) if is_managed(silo) else None
        words.append(f"{name} ({pod.reason})" if pod is not None and pod.trouble else name)
    return f"missing: {join_names(words)}" if words else "the federation has no other silos"


def _succeeded_condition(situation: Situation, failed: Finding, open_reason: str) -> Finding:
    if situation.succeeded:
        return Finding("True", reasons.ALL_ROUNDS_COMMITTED, "all rounds are committed")
    if failed.holds:
        return Finding("False", failed.reason, failed.message)
    return Finding("Unknown", open_reason)


def _failed_condition(situation: Situation, open_reason: str) -> Finding:
    if situation.succeeded:
        return Finding("False", reasons.ALL_ROUNDS_COMMITTED)
    before = situation.finding(ConditionType.FAILED)
    if situation.stopped and before is not None:
        return before
    condition = reported_condition(situation, ConditionType.FAILED)
    if (
        condition is not None
        and condition.status == "True"
        and condition.reason in {entry.reason for entry in CATALOGUE.values()}
    ):
        passing = condition.reason in (QUORUM_LOST.reason, STOPPED.reason)
        return Finding("False" if passing else "True", condition.reason, condition.message)
    pod = situation.server_pod
    if situation.report is None and situation.server_wanted and pod.fatal:
        return Finding("True", pod.reason, pod.message)
    return Finding("False", open_reason)


def _tracked_condition(situation: Situation) -> Finding | None:
    """Return what the server says of MLflow, None where it has said nothing; a server that is away sends nothing."""
    condition, before = reported_condition(situation, ConditionType.TRACKED), situation.finding(ConditionType.TRACKED)
    if condition is not None:
        return (
            Finding("True", reasons.SENT)
            if condition.status == "True"
            else Finding(condition.status, condition.reason, condition.message)
        )
    if before is not None and before.status == "Unknown" and situation.server_away:
        return Finding("Unknown", reasons.SERVER_UNAVAILABLE)
    return before


def _ready(situation: Situation, findings: Findings, succeeded: Finding, failed: Finding) -> Finding:
    """Summarise the conditions: the first one that is not true gives the reason."""
    accepted = findings[ConditionType.ACCEPTED]
    if not accepted.holds:
        goes_on = (
            f"; the previous spec stays in use but for {', '.join(CLUSTER_ONLY)}" if situation.spec is not None else ""
        )
        return Finding("False", accepted.reason, accepted.message + goes_on)
    if failed.holds:
        return Finding("False", failed.reason, failed.message)
    for finding in findings.values():
        if not finding.holds and not (succeeded.holds and finding.reason in _QUIET_AT_THE_END):
            return Finding("False", finding.reason, finding.message)
    if succeeded.holds:
        return Finding(
            "True", reasons.SUCCEEDED, "all rounds are committed; the server keeps running to provide the results"
        )
    if situation.finished:
        return Finding("True", reasons.STORING_RESULTS, "all rounds are committed; the server stores the results")
    condition = reported_condition(situation, ConditionType.READY)
    return Finding(
        "True", reasons.TRAINING, condition.message if condition is not None and condition.status == "True" else ""
    )

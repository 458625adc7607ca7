"""Events about the differences between two statuses: posted on transitions only."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from anchorage.api.errors import CATALOGUE
from anchorage.api.errors.rounds import QUORUM_LOST
from anchorage.api.status import ConditionType
from anchorage.transport.kube.resources import Json
from anchorage_operator import reasons
from anchorage_operator.conditions import Finding, clip_message, find, join_names
from anchorage_operator.names import involved_object
from anchorage_operator.planned import Event

SINGLE_SILOS = 5
"""Silos that are told of one by one; more of them share an Event."""
PROGRESS_STEP = 10
"""Percent of the rounds between two Events."""

_QUIET = (
    reasons.STARTING,
    reasons.TERMINATING,
    reasons.POD_MISSING,
    reasons.SUSPENDED,
    reasons.HALTED,
    reasons.SUCCEEDED,
    reasons.CERTIFICATES_PENDING,
    reasons.FEDERATION_NOT_ACCEPTED,
    reasons.SERVER_UNAVAILABLE,
    reasons.WAITING_FOR_SILOS,
    reasons.SENDING,
    reasons.QUEUED,
)
"""Reasons of a condition that is not true which are no news."""

_TRUE_EVENTS = {
    ConditionType.ACCEPTED: "the spec was accepted and is in use",
    ConditionType.SERVER_AVAILABLE: "the server's pod is running and responding",
    ConditionType.SUCCEEDED: "all rounds are committed",
    ConditionType.TRACKED: "MLflow has the results",
}
_OF_SILO = {k: f"Silo{k}" for k in (ConditionType.APPROVED, ConditionType.ENROLLED, ConditionType.CONNECTED)}


def federation_events(federation: Json, before: Json, after: Json) -> Iterator[Event]:
    """Yield the Events for a change of a Federation's status.

    Parameters
    ----------
    federation : Json
        The object.
    before, after : Json
        Its status as it is and as it becomes.
    """
    about = involved_object(federation)
    for kind in (
        ConditionType.ACCEPTED,
        ConditionType.CERTIFICATES_VALID,
        ConditionType.SERVER_AVAILABLE,
        ConditionType.QUORUM_MET,
    ):
        yield from _of_condition(about, kind, find(before, kind), find(after, kind))
    yield from _suspension(about, find(before, ConditionType.READY), find(after, ConditionType.READY))
    yield from _progress(about, before, after)
    for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED, ConditionType.TRACKED):  # after the last round
        yield from _of_condition(about, kind, find(before, kind), find(after, kind))
    quorum = find(after, ConditionType.QUORUM_MET)
    at_rest = quorum is not None and quorum.reason in (reasons.SUCCEEDED, reasons.SUSPENDED, reasons.HALTED)
    yield from _of_silos(about, before.get("silos", ()), after.get("silos", ()), at_rest=at_rest)
    old, new = (status.get("certificates", {}).get("serverNotAfter") for status in (before, after))
    if old and new and old != new:
        yield _event(about, "Normal", "CertificateRotated", f"the server has a new certificate, which expires at {new}")


def silo_events(silo: Json, before: Json, after: Json) -> Iterator[Event]:
    """Yield the Events for a change of a Silo's status: admission, connection, and problems of its agent's pod."""
    about = involved_object(silo)
    for kind, reason in _OF_SILO.items():
        old, new = find(before, kind), find(after, kind)
        if new is not None and new.holds and new.reason != reasons.MANAGED and not (old is not None and old.holds):
            yield _event(about, "Normal", reason, new.message or f"{kind} is True ({new.reason})")
    for kind in (
        ConditionType.ACCEPTED,
        ConditionType.AGENT_AVAILABLE,
        ConditionType.ENROLLED,
        ConditionType.CONNECTED,
    ):
        old, new = find(before, kind), find(after, kind)
        if new is None or new.holds or new.reason in _QUIET:
            continue
        lost = kind == ConditionType.CONNECTED and old is not None and old.holds
        broken = kind in (ConditionType.ACCEPTED, ConditionType.AGENT_AVAILABLE)
        expired = new.reason in (reasons.INVITATION_EXPIRED, reasons.CERTIFICATE_EXPIRED, reasons.PENDING_APPROVAL)
        if lost:
            yield _event(about, "Warning", "SiloLost", new.message)
        elif (broken or (kind == ConditionType.ENROLLED and expired)) and (old is None or old.reason != new.reason):
            yield _event(about, "Warning", new.reason, new.message)


def _of_condition(about: Json, kind: ConditionType, old: Finding | None, new: Finding | None) -> Iterator[Event]:
    if new is None:
        return
    turned = old is None or old.status != new.status
    changed = old is None or old.reason != new.reason
    if kind == ConditionType.FAILED:
        if new.holds and turned:
            yield _event(about, "Warning", "Failed", f"{new.reason}: {new.message}")
    elif kind == ConditionType.QUORUM_MET:
        yield from _quorum(about, old, new)
    elif new.holds:
        if turned and kind in _TRUE_EVENTS:
            yield _event(about, "Normal", kind, new.message or _TRUE_EVENTS[kind])
        elif new.reason == reasons.CERTIFICATE_EXPIRING and changed:
            yield _event(about, "Warning", new.reason, new.message)
    elif kind != ConditionType.SUCCEEDED and new.reason not in _QUIET and (turned or changed):
        yield _event(about, "Warning", new.reason, new.message)


def _quorum(about: Json, old: Finding | None, new: Finding) -> Iterator[Event]:
    lost = new.reason in CATALOGUE_REASONS and not new.holds
    if lost and (old is None or old.reason != new.reason):
        yield _event(about, "Warning", QUORUM_LOST.reason, new.message)
    elif new.reason == reasons.QUORUM_MET and old is not None and not old.holds:
        yield _event(about, "Normal", "QuorumMet", "enough silos are connected")


def _suspension(about: Json, old: Finding | None, new: Finding | None) -> Iterator[Event]:
    was, is_now = (finding is not None and finding.reason == reasons.SUSPENDED for finding in (old, new))
    if is_now and not was:
        yield _event(about, "Normal", "Suspended", "the pods are stopped; training resumes when spec.suspend is false")
    elif was and not is_now:
        yield _event(about, "Normal", "Resumed", "the pods are started; training resumes from the last committed round")


def _progress(about: Json, before: Json, after: Json) -> Iterator[Event]:
    was, is_now = find(before, ConditionType.SUCCEEDED), find(after, ConditionType.SUCCEEDED)
    if is_now is not None and is_now.reason == reasons.TRAINING and (was is None or was.reason == reasons.WAITING):
        yield _event(about, "Normal", "TrainingStarted", f"the first of {after.get('rounds', 0)} rounds has started")
    over = is_now is not None and is_now.holds
    old, new = find(before, ConditionType.SERVER_AVAILABLE), find(after, ConditionType.SERVER_AVAILABLE)
    came_back = old is not None and not old.holds and new is not None and new.holds
    if came_back and before.get("round") and after.get("round") and not over:
        text = f"the server resumed after round {after['round']}, the last committed one"
        yield _event(about, "Normal", "CheckpointRestored", text)
    steps = [int(status.get("progressPercentage", 0)) // PROGRESS_STEP for status in (before, after)]
    if steps[1] > steps[0]:
        shown = f"; {after['metric']}" if after.get("metric") else ""
        yield _event(
            about, "Normal", "Progress", f"round {after['round']} of {after.get('rounds', 0)} is committed{shown}"
        )


def _of_silos(about: Json, before: Sequence[Json], after: Sequence[Json], *, at_rest: bool) -> Iterator[Event]:
    was, is_now = ({silo["name"] for silo in silos if silo.get("connected")} for silos in (before, after))
    messages: Mapping[str, str] = {silo["name"]: silo.get("message", "") for silo in after}
    changes: Sequence[tuple[set[str], Literal["Normal", "Warning"], str, str]] = (
        (is_now - was, "Normal", "SiloConnected", "connected"),
        (set() if at_rest else was - is_now, "Warning", "SiloLost", "no longer connected"),
    )
    for names, kind, reason, words in changes:
        if len(names) > SINGLE_SILOS:
            yield _event(about, kind, reason, f"{len(names)} silos are {words}: {join_names(names)}")
            continue
        for name in sorted(names):
            why = f" ({messages[name]})" if kind == "Warning" and messages.get(name) else ""
            yield _event(about, kind, reason, f"silo {name} is {words}{why}")


def _event(about: Json, kind: Literal["Normal", "Warning"], reason: str, message: str) -> Event:
    return Event(about, kind, reason, clip_message(message) or reason)


CATALOGUE_REASONS = frozenset(entry.reason for entry in CATALOGUE.values())
"""Reasons of the catalogue of failures."""

"""The status of a Federation: what the server reports, what the operator adds, and how often it is written."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from anchorage.api.silo_state import AT_WORK, SiloState
from anchorage.api.status import FAST, MOMENTARY, ConditionType, FederationStatus, marked_fields, seconds_of, timestamp
from anchorage.transport.kube.resources import Json
from anchorage_operator.addresses import endpoints
from anchorage_operator.conditions import Findings, conditions, find
from anchorage_operator.membership import approval
from anchorage_operator.situation import Situation

MOST_SILOS = 1000
"""Maximum number of silos in a Federation's status; the others are only in their Silo objects."""
SEEN_SECONDS = 60.0
"""Interval at which `lastSeenTime` is written if nothing else changed."""
UNCHANGED_SECONDS = 300.0
"""Interval at which the status of a federation that trains is written if nothing changed, so that people see that somebody looks."""
SILO_SECONDS = 8.0
"""Interval at which a Silo's progress is written; longer if there are many silos."""
SILOS_PER_SECOND = 10
"""Maximum number of Silo statuses written per second for progress alone."""

_REPORTED = (
    "round",
    "rounds",
    "progressPercentage",
    "step",
    "connectedSilos",
    "silos",
    "metrics",
    "metric",
    "lastCheckpoint",
    "model",
    "bestModel",
    "tracking",
    "startTime",
    "completionTime",
    "bytesUp",
    "bytesDown",
)
_FAST = ("step", "bytesUp", "bytesDown", "lastUpdatedTime")
_FAST_OF_SILO = marked_fields(MOMENTARY, FAST)


def federation_status(situation: Situation, findings: Findings) -> dict[str, Any]:
    """Return the Federation's current status.

    Parameters
    ----------
    situation : Situation
        The federation.
    findings : mapping of ConditionType to Finding
        Its conditions.
    """
    before, observed = situation.status, situation.observed
    reported = _report_fields(situation.report, before) if situation.report is not None else _last_reported(situation)
    status: dict[str, Any] = {
        "observedGeneration": situation.generation,
        "conditions": conditions(
            findings, before.get("conditions", ()), generation=situation.generation, now=situation.now
        ),
        **reported,
        "silosSummary": _summary(situation, int(reported.get("connectedSilos", 0)), reported.get("silos", ())),
        "lastUpdatedTime": timestamp(situation.now),
    }
    if situation.spec is not None:
        status["rounds"] = situation.spec.rounds
        status["endpoint"], status["enrolmentEndpoint"] = endpoints(observed, situation.spec, situation.settings)
    certificates = {}
    if observed.server_certificate is not None:
        certificates["serverNotAfter"] = timestamp(observed.server_certificate.not_after)
    if observed.authority is not None:
        certificates["authorityNotAfter"] = timestamp(observed.authority.not_after)
    if certificates:
        status["certificates"] = certificates
    return status


def is_write_due(before: Json, after: Json, situation: Situation) -> bool:
    """Return whether to write the Federation's status: at once for changes other than progress, otherwise at intervals."""
    if _without_defaults(_without_progress(before)) != _without_defaults(_without_progress(after)):
        return True
    written = before.get("lastUpdatedTime")
    age = math.inf if written is None else situation.now - seconds_of(written)
    if not has_news(before, after):
        return situation.report is not None and not situation.finished and age >= UNCHANGED_SECONDS
    return age >= progress_seconds(situation)


def has_news(before: Json, after: Json) -> bool:
    """Return whether a Federation's status contains anything new."""
    return bool(
        _without_defaults(_without(before, ("lastUpdatedTime",)))
        != _without_defaults(_without(after, ("lastUpdatedTime",)))
    )


def is_silo_write_due(before: Json, after: Json, situation: Situation) -> bool:
    """Return whether to write a Silo's status; `after` does not contain an approval given by a person."""
    types = {condition["type"] for condition in after.get("conditions", ())}
    comparable = {
        **before,
        "conditions": [each for each in before.get("conditions", ()) if each["type"] in types | _OPERATOR_CONDITIONS],
    }
    if _without_defaults(_without(comparable, _FAST_OF_SILO)) != _without_defaults(_without(after, _FAST_OF_SILO)):
        return True
    if _without_defaults(_without(comparable, ("lastSeenTime",))) == _without_defaults(
        _without(after, ("lastSeenTime",))
    ):
        return _age(before, after) >= SEEN_SECONDS
    connected = find(after, ConditionType.CONNECTED)
    seconds = max(SILO_SECONDS, len(situation.silos) / SILOS_PER_SECOND)
    return connected is None or not connected.holds or _age(before, after) >= seconds


def progress_seconds(situation: Situation) -> float:
    """Return the interval in seconds at which progress is written: the poll interval, longer for large federations."""
    return situation.settings.poll_seconds * max(1.0, len(situation.silos) / 100)


_OPERATOR_CONDITIONS = {
    ConditionType.ACCEPTED,
    ConditionType.ENROLLED,
    ConditionType.AGENT_AVAILABLE,
    ConditionType.CONNECTED,
    ConditionType.READY,
}
"""Conditions of a Silo that only the operator writes."""


_IN_SILOS_ALONE = ("packages",)
"""What of a silo only its own Silo has: of all of them it may not fit into one object."""


def _report_fields(report: FederationStatus, before: Json) -> dict[str, Any]:
    values = report.model_dump(mode="json", by_alias=True, exclude_none=True)
    report_fields = {key: values[key] for key in _REPORTED if key in values}
    silo_rows = [_without(silo, _IN_SILOS_ALONE) for silo in report_fields.get("silos", [])[:MOST_SILOS]]
    report_fields["silos"] = _keep_last_seen(silo_rows, before.get("silos", ()))
    return report_fields


def _last_reported(situation: Situation) -> dict[str, Any]:
    """Return the last reported values; without a running server, no silo is connected and none works."""
    last_report = {key: situation.status[key] for key in _REPORTED if key in situation.status}
    if situation.server_away:
        last_report |= {
            "connectedSilos": 0,
            "step": "",
            "silos": [_without_task(silo) for silo in last_report.get("silos", ())],
        }
    return last_report


def _without_task(silo: Json) -> dict[str, Any]:
    """Do for a silo as `anchorage.api.status.at_rest` does."""
    idle = {"state": SiloState.WAITING, "task": "", "progress": 0} if silo.get("state") in AT_WORK else {}
    return {**_without(silo, ("rate", "secondsLeft")), "connected": False, **idle}


def _keep_last_seen(silos: Sequence[dict[str, Any]], before: Sequence[Json]) -> list[dict[str, Any]]:
    """Keep the written `lastSeenTime` of silos for which nothing else changed."""
    known = {silo["name"]: silo for silo in before}
    calm = []
    for silo in silos:
        old = known.get(silo["name"], {})
        same = _without(old, ("lastSeenTime",)) == _without(silo, ("lastSeenTime",))
        lately = "lastSeenTime" in old and 0 <= _age(old, silo) < SEEN_SECONDS
        calm.append({**silo, "lastSeenTime": old["lastSeenTime"]} if same and lately else silo)
    return calm


def _age(before: Json, after: Json) -> float:
    old, new = before.get("lastSeenTime"), after.get("lastSeenTime")
    if old is None or new is None:
        return 0.0 if old == new else math.inf
    return seconds_of(new) - seconds_of(old)


def _summary(situation: Situation, connected: int, silos: Sequence[Json]) -> str:
    """Return the number of connected and approved silos; after the last round, how many of them trained, once and for all."""
    last = str(situation.status.get("silosSummary") or "0/0")
    if situation.finished:
        before = find(situation.status, ConditionType.SUCCEEDED)
        if before is not None and before.holds:
            return last
        trained = sum(1 for silo in silos if silo.get("samples") and silo["name"] in situation.silos)
        connected = max(connected, trained, int(last.partition("/")[0]))
    expected = sum(approval(situation, silo).finding.holds for silo in situation.silos.values())
    return f"{connected}/{expected}"


def _without_progress(status: Json) -> dict[str, Any]:
    slow_fields = _without(status, _FAST)
    slow_fields["silos"] = [_without(silo, _FAST_OF_SILO) for silo in status.get("silos", ())]
    return slow_fields


def _without(values: Json, keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _without_defaults(value: Any) -> Any:
    """Remove empty values, since the API server adds defaults of unwritten fields."""
    if isinstance(value, Mapping):
        bare = {key: _without_defaults(item) for key, item in value.items()}
        return {key: item for key, item in bare.items() if item not in ("", 0, None, {}, [])}
    return [_without_defaults(item) for item in value] if isinstance(value, list | tuple) else value

"""Conditions in the format of the Kubernetes API."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anchorage.api.status import ConditionType, timestamp
from anchorage.transport.kube.resources import Json

Truth = Literal["True", "False", "Unknown"]

LONGEST_MESSAGE = 1024
"""Bytes of a condition's and an Event's message."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The value of a condition."""

    status: Truth
    reason: str
    message: str = ""

    @property
    def holds(self) -> bool:
        """Whether the condition is true."""
        return self.status == "True"


Findings = Mapping[ConditionType, Finding]
"""Findings by the condition's type, in the order in which they are shown."""


def conditions(findings: Findings, before: Sequence[Json], *, generation: int, now: float) -> list[dict[str, Any]]:
    """Convert findings to a list of conditions; ``lastTransitionTime`` changes only with ``status``.

    Parameters
    ----------
    findings : mapping of ConditionType to Finding
        What the conditions become.
    before : sequence of Json
        The conditions as they are.
    generation : int
        Generation of the object that was looked at.
    now : float
        Seconds since the epoch.
    """
    known = {condition["type"]: condition for condition in before}
    written = []
    for kind, finding in findings.items():
        old = known.get(kind)
        since = old["lastTransitionTime"] if old and old["status"] == finding.status else timestamp(now)
        written.append(
            {
                "type": kind,
                "status": finding.status,
                "reason": finding.reason,
                "message": clip_message(finding.message),
                "lastTransitionTime": since,
                "observedGeneration": generation,
            }
        )
    return written


def find(status: Json, kind: ConditionType) -> Finding | None:
    """Return a condition of a status."""
    written = find_written(status, kind)
    return Finding(written["status"], written["reason"], written.get("message", "")) if written is not None else None


def find_written(status: Json, kind: ConditionType) -> Json | None:
    """Return a condition of a status as it is written there."""
    return next((condition for condition in status.get("conditions", ()) if condition["type"] == kind), None)


def clip_message(message: str) -> str:
    """Shorten a message to one line of at most `LONGEST_MESSAGE` bytes."""
    line = " ".join(message.split())
    raw = line.encode()
    if len(raw) <= LONGEST_MESSAGE:
        return line
    return raw[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "…"


def join_names(names: Iterable[str], most: int = 8) -> str:
    """Join names for a message: ``a, b and 3 more``."""
    all_names = sorted(names)
    shown, rest = all_names[:most], len(all_names) - most
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")

"""Pods that differ only because the operator or its settings are newer are replaced between rounds, a few federations at a time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from anchorage.transport.kube.resources import Json
from anchorage_operator.cache import Key
from anchorage_operator.drift import needs_apply
from anchorage_operator.names import APPLIED_HASH, ASKED_HASH, SILO_LABEL
from anchorage_operator.situation import Situation

LEAST_SECONDS, MOST_SECONDS = 30.0, 600.0
"""How long a federation has its turn: until its server answers again, within these bounds."""


def is_held(situation: Situation, built: Json, live: Json | None) -> bool:
    """Return whether a change of a StatefulSet waits: the documents ask for the same as before, and its pod is ready."""
    if live is None or built["kind"] != "StatefulSet" or not built["spec"]["replicas"]:
        return False
    wanted, known = built["metadata"]["annotations"], live["metadata"].get("annotations", {})
    if known.get(APPLIED_HASH) == wanted[APPLIED_HASH] or known.get(ASKED_HASH) not in (None, wanted[ASKED_HASH]):
        return False
    silo = built["metadata"]["labels"].get(SILO_LABEL)
    pod = situation.agent_pod(silo) if silo is not None else situation.server_pod
    return pod.ready and needs_apply({"spec": {"template": built["spec"]["template"]}}, live)


def is_between_rounds(situation: Situation) -> bool:
    """Return whether a restart of the server now costs little: a round was just committed, or none is open."""
    report = situation.report
    return report is not None and (situation.observed.committed or not report.step)


@dataclass(eq=False)
class Turns:
    """Lets a few federations at a time have their pods replaced."""

    limit: int
    """Federations at a time; 0: none, so that only suspended ones are upgraded."""
    now: Callable[[], float]
    """Seconds."""
    _started_at: dict[Key, float] = field(default_factory=dict, init=False)
    _waiting: set[Key] = field(default_factory=set, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def take(self, key: Key) -> bool:
        """Take a turn; return whether there was one."""
        with self._lock:
            self._started_at = {
                each: since for each, since in self._started_at.items() if self.now() - since < MOST_SECONDS
            }
            if key not in self._started_at and len(self._started_at) >= self.limit:
                return False
            self._started_at[key] = self.now()
            return True

    def note(self, key: Key, *, waits: bool, answers: bool) -> None:
        """Note whether pods of a federation wait to be replaced, and whether its server answers, which ends its turn."""
        with self._lock:
            (self._waiting.add if waits else self._waiting.discard)(key)
            if answers and not waits and self.now() - self._started_at.get(key, self.now()) >= LEAST_SECONDS:
                del self._started_at[key]

    def waiting(self) -> int:
        """Return how many federations have pods that wait to be replaced."""
        return len(self._waiting)

"""The observed state of a federation and the values derived from it that all decisions use."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from anchorage.api.errors.rounds import DEADLINE_EXCEEDED
from anchorage.api.federation import Federation, FederationSpec, Silo
from anchorage.api.status import STORING_RESULTS, ConditionType, FederationStatus, find_condition, seconds_of
from anchorage.transport.kube.resources import STATE_LOST, Json
from anchorage_operator import reasons
from anchorage_operator.conditions import Finding, find, find_written
from anchorage_operator.in_use import InUse, last_federation, last_silo
from anchorage_operator.names import COMPONENT_LABEL, SILO_LABEL, STATE_VOLUME, agent_name, server_name
from anchorage_operator.observed import Observed
from anchorage_operator.pods import PodHealth, diagnose
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.verdict import Verdict, judge

RESULTS_AFTER_SECONDS = 60.0
"""How long after the end the server keeps its resources where nothing says that MLflow has the results."""


@dataclass(frozen=True)
class Situation:
    """One federation at one time."""

    observed: Observed
    """What was observed."""
    settings: OperatorSettings
    """The operator's settings."""
    now: float
    """Seconds since the epoch."""

    @cached_property
    def federation(self) -> Json:
        """The Federation object; empty where there is none."""
        return self.observed.federation or {}

    @cached_property
    def silos(self) -> Mapping[str, Json]:
        """The Silo objects that are not being deleted, in the order of their names."""
        silos = sorted(self.observed.silos.items())
        return {name: silo for name, silo in silos if not silo["metadata"].get("deletionTimestamp")}

    @cached_property
    def verdict(self) -> Verdict:
        """The accepted specs."""
        return judge(self.observed, self.silos, self.settings)

    @cached_property
    def in_use(self) -> InUse[Federation] | None:
        """The Federation with the spec in use: the object, or what was accepted last if the object is not accepted."""
        accepted = self.verdict.federation
        return InUse(accepted, self.federation) if accepted is not None else last_federation(self.observed)

    @cached_property
    def silos_in_use(self) -> Mapping[str, InUse[Silo]]:
        """The same for the silos; while the Federation is refused, of those that run already."""
        accepted = {name: InUse(silo, self.silos[name]) for name, silo in self.verdict.silos.items()}
        if self.verdict.refusal is not None:
            configs = self.observed.children
            accepted = {name: each for name, each in accepted.items() if ("ConfigMap", agent_name(name)) in configs}
        refused = {name: last_silo(self.observed, name) for name in self.verdict.refused}
        return accepted | {name: each for name, each in refused.items() if each is not None}

    @property
    def spec(self) -> FederationSpec | None:
        """The spec in use."""
        return self.in_use.typed.spec if self.in_use is not None else None

    @property
    def status(self) -> Json:
        """The Federation's status as it was written last."""
        status: Json = self.federation.get("status") or {}
        return status

    @property
    def generation(self) -> int:
        """Generation of the Federation object."""
        return int(self.federation["metadata"].get("generation", 0))

    @cached_property
    def lost_state(self) -> str:
        """What the server's volume lacks of what was committed, and what to do; empty where it lacks nothing, or somebody said that it is lost.

        A server goes back by one round itself where the last checkpoint is damaged.
        """
        report, committed = self.observed.report, int(self.status.get("round", 0))
        if not isinstance(report, FederationStatus):
            before = self.finding(ConditionType.SERVER_AVAILABLE)
            return before.message if before is not None and before.reason == reasons.STATE_LOST else ""
        known = self.federation.get("metadata", {}).get("annotations", {}).get(STATE_LOST)
        if report.round >= committed or (report.round and report.round == committed - 1) or known == str(committed):
            return ""
        has = f"has round {report.round} only" if report.round else "is empty"
        return (
            f"round {committed} was committed, the volume {has}; bring back the volume {STATE_VOLUME}-{server_name(self.observed.name)}-0, or "
            f"give the rounds up with `kubectl annotate fed {self.observed.name} {STATE_LOST}={committed}`"
        )

    @property
    def report(self) -> FederationStatus | None:
        """The server's status, None if it did not respond, or does not know of rounds that were committed."""
        return (
            self.observed.report if isinstance(self.observed.report, FederationStatus) and not self.lost_state else None
        )

    @property
    def suspended(self) -> bool:
        """Whether spec.suspend is set."""
        return self.spec is not None and self.spec.suspend

    @cached_property
    def _outcome(self) -> Finding | None:
        """The condition Succeeded as the server reports it, else as it was written; None where requested rounds are missing."""
        if self.report is not None:
            condition, committed = find_condition(self.report.conditions, ConditionType.SUCCEEDED), self.report.round
            outcome = Finding(condition.status, condition.reason, condition.message) if condition is not None else None
        else:
            outcome, committed = find(self.status, ConditionType.SUCCEEDED), int(self.status.get("round", 0))
        return outcome if self.spec is not None and committed >= self.spec.rounds else None

    @property
    def finished(self) -> bool:
        """Whether all requested rounds are committed; their results may not be stored yet."""
        outcome = self._outcome
        return outcome is not None and (outcome.holds or outcome.reason == STORING_RESULTS)

    @property
    def succeeded(self) -> bool:
        """Whether all requested rounds are committed and their results are stored."""
        return self._outcome is not None and self._outcome.holds

    @cached_property
    def stopped(self) -> bool:
        """Whether training failed permanently and the spec was not changed since."""
        failed = find(self.status, ConditionType.FAILED)
        written = find_written(self.status, ConditionType.FAILED)
        generation = written.get("observedGeneration") if written is not None else None
        is_overdue = failed is not None and failed.holds and failed.reason == DEADLINE_EXCEEDED.reason
        return is_overdue and generation == self.generation and not self.finished

    @property
    def keeps_results(self) -> bool:
        """Whether a run that was stopped for good has rounds and models that a pod keeps at hand, without training."""
        return self.stopped and not self.suspended and int(self.status.get("round", 0)) > 0

    @property
    def server_wanted(self) -> bool:
        """Whether the server's pod should run."""
        return not self.suspended and not self.stopped

    @property
    def agents_wanted(self) -> bool:
        """Whether the agents' pods should run."""
        return self.observed.federation is not None and self.server_wanted and not self.finished

    @cached_property
    def results_only(self) -> bool:
        """Whether the server only provides the results."""
        if self.keeps_results:
            return True
        if not self.finished:
            return False
        before = find_written(self.status, ConditionType.SUCCEEDED)
        if before is None or before["status"] != "True":
            return False
        if self.report is not None:
            tracked = bool(self.report.model and self.report.tracking.model_version)
        else:  # as while the pod is replaced for this very reason
            tracked = bool(self.status.get("model") and (self.status.get("tracking") or {}).get("modelVersion"))
        return tracked or self.now - seconds_of(before["lastTransitionTime"]) >= RESULTS_AFTER_SECONDS

    @cached_property
    def server_pod(self) -> PodHealth:
        """The state of the server's pod."""
        return self._health("server", server_name(self.observed.name), {COMPONENT_LABEL: "server"})

    @property
    def server_away(self) -> bool:
        """Whether no server runs."""
        return self.report is None and (not self.server_wanted or not self.server_pod.ready or bool(self.lost_state))

    def agent_pod(self, silo: str) -> PodHealth:
        """Return the state of a managed silo's pod."""
        return self._health("agent", agent_name(silo), {COMPONENT_LABEL: "silo", SILO_LABEL: silo})

    def is_made(self, owner: str) -> bool:
        """Return whether a StatefulSet is there, or refused, so that its pod's state tells what is wrong."""
        return ("StatefulSet", owner) in self.observed.children or owner in self.observed.refused_changes

    def refused_change(self, owner: str) -> str:
        """Say what the API server refuses of a StatefulSet that is there; empty where there is nothing."""
        why = self.observed.refused_changes.get(owner)
        return f"the pod stays as it was: {why}" if why and ("StatefulSet", owner) in self.observed.children else ""

    def refused_object(self, *names: str) -> Finding | None:
        """Return what keeps a pod from working where the API server refuses an object of one of these names."""
        for ref, why in self.observed.refused_objects.items():
            if ref.partition(" ")[2] in names:
                return Finding("False", reasons.OBJECT_REFUSED, f"{ref} was refused: {why}")
        return None

    def finding(self, kind: ConditionType) -> Finding | None:
        """Return a condition of the Federation's written status."""
        return find(self.status, kind)

    def _health(self, container: str, owner: str, labels: Mapping[str, str]) -> PodHealth:
        pods = [pod for pod in self.observed.pods if labels.items() <= pod["metadata"].get("labels", {}).items()]
        pods.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
        refused = {**self.observed.refused_pods, **self.observed.refused_changes}
        if not pods and owner in refused:
            return PodHealth(False, reasons.POD_REFUSED, refused[owner])
        health = diagnose(pods[-1] if pods else None, container, self.observed.claims, self.now)
        why = self.observed.volume_failures.get(pods[-1]["metadata"]["name"]) if pods else None
        return (
            PodHealth(False, reasons.VOLUME_NOT_MOUNTED, why) if why and health.reason == reasons.STARTING else health
        )

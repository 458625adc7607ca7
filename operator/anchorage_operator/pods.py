"""Summarises a pod's status as one reason and one line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anchorage.api.errors import CATALOGUE
from anchorage.api.errors.rounds import EVALUATION_MISSING, QUORUM_LOST, STOPPED
from anchorage.api.status import seconds_of
from anchorage.transport.kube.resources import Json
from anchorage_operator import reasons
from anchorage_operator.names import QUEUE_GATE, QUEUE_LABEL

EXITS: Mapping[int, str] = {
    0: "exited without an error",
    1: "program error",
    2: "error in the documents or the command",
    3: "data",
    4: "identity or connection",
    5: "rounds or deadline",
    6: "storage",
    7: "tracking",
    8: "learning",
    70: "internal error",
    126: "the command cannot be executed",
    127: "the command was not found",
    134: "aborted",
    137: "killed",
    139: "segmentation fault",
    143: "terminated",
}
"""What exit statuses mean."""
YOUNG_SECONDS = 10.0
"""How long a pod may be ahead of what is known of its claims."""
LOST_SECONDS = 300.0
"""How long after its end a pod may be there still, until its node counts as lost."""
MANY_RESTARTS = 3
"""Restarts after which a container that is not ready counts as crashing."""

_FAILURE = re.compile(r"^(ANC-\d{4}) ([A-Z][A-Za-z0-9]*): (.*)$", re.MULTILINE)
_WORD = re.compile(r"^[A-Z][A-Za-z0-9]{0,62}$")
_PASSING = {QUORUM_LOST.reason, STOPPED.reason, EVALUATION_MISSING.reason}
"""Failures after which a restart may find things mended."""
_NOT_CREATED = {"ContainerCreating", "PodInitializing"}
_PULLING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")


@dataclass(frozen=True, slots=True)
class PodHealth:
    """The state of a pod."""

    ready: bool
    """Whether it is ready."""
    reason: str
    """Why it is not, a reason of `reasons` or of the catalogue."""
    message: str = ""
    """One line for people."""
    fatal: bool = False
    """Whether its process ended with a failure that comes again at every start until somebody mends it."""

    @property
    def trouble(self) -> bool:
        """Whether the pod has a problem that may need attention."""
        passing = (reasons.AVAILABLE, reasons.STARTING, reasons.RESTARTING, reasons.TERMINATING, reasons.POD_MISSING)
        return self.reason not in passing


def diagnose(pod: Json | None, name: str, claims: Mapping[str, str] | None, now: float) -> PodHealth:
    """Summarise the state of a pod, whose own container may have company: webhooks add containers and init containers.

    Parameters
    ----------
    pod : Json or None
        The pod, None where there is none.
    name : str
        Its own container.
    claims : mapping of str to str, or None
        Phases of the namespace's volume claims, None where they are not known.
    now : float
        Seconds since the epoch.
    """
    if pod is None:
        return PodHealth(False, reasons.POD_MISSING, "the pod does not exist yet")
    status = pod.get("status", {})
    if ended := pod["metadata"].get("deletionTimestamp"):
        return _terminating(pod, now - seconds_of(ended))
    if status.get("phase") == "Failed":
        return _given_up(status)
    containers = {each["name"]: each for each in status.get("containerStatuses", ())}
    container = containers.pop(name, None)
    if container is not None and (ended := _crash_of(pod, container)) is not None:
        return ended
    if container is None or "waiting" in container.get("state", {}):
        return _not_started(pod, name, container, claims, now)
    if any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ())):
        return PodHealth(True, reasons.AVAILABLE)
    starting = PodHealth(False, reasons.STARTING, "the process is running but not ready yet")
    return _of_company(pod, [*status.get("initContainerStatuses", ()), *containers.values()]) or starting


def failure_in(text: str) -> tuple[str, str] | None:
    """Find the last line ``ANC-1234 Reason: message`` of a termination message: the reason, and the line."""
    failure = None
    for match in _FAILURE.finditer(text):
        known = CATALOGUE.get(match[1])
        failure = (known.reason if known else match[2], match[0])
    return failure


def awaits_volumes(pod: Json, now: float) -> bool:
    """Return whether a node has a pod for a while and has created no container of it, as while it waits for volumes."""
    status, created = pod.get("status", {}), pod["metadata"].get("creationTimestamp")
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    begun = {each.get("state", {}).get("waiting", {}).get("reason") for each in containers} - _NOT_CREATED
    has_node = bool(pod["spec"].get("nodeName")) and not pod["metadata"].get("deletionTimestamp")
    young = created is None or now - seconds_of(created) <= YOUNG_SECONDS
    return has_node and status.get("phase") == "Pending" and not begun and not young


def _terminating(pod: Json, late: float) -> PodHealth:
    """Report a pod that is being deleted, which only its node can confirm; `late` are the seconds since it should have ended."""
    node = pod["spec"].get("nodeName")
    if late < LOST_SECONDS or not node:
        return PodHealth(False, reasons.TERMINATING, "the pod is being deleted")
    name = pod["metadata"]["name"]
    message = (
        f"node {node} has not confirmed for {late / 60:.0f} minutes that pod {name} ended: bring the node back, and it goes on by itself; or, if its "
        f"machine is off for good, `kubectl delete node {node}` (`kubectl delete pod {name} --force` does it for this pod alone)"
    )
    return PodHealth(False, reasons.NODE_LOST, message)


def _given_up(status: Json) -> PodHealth:
    reason = str(status.get("reason", ""))
    if reason == reasons.EVICTED:
        return PodHealth(False, reasons.EVICTED, str(status.get("message", "")))
    return PodHealth(False, reasons.POD_FAILED, ": ".join(filter(None, (reason, status.get("message", "")))))


def _crash_of(pod: Json, container: Json) -> PodHealth | None:
    """Report a crashing container; one that was restarted counts as crashed until it is ready."""
    state = container.get("state", {})
    waiting = state.get("waiting", {}).get("reason") == "CrashLoopBackOff"
    if not waiting and "terminated" not in state and ("running" not in state or container.get("ready")):
        return None
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
    if not ended or (not waiting and not ended.get("exitCode")):
        return None
    code = int(ended.get("exitCode", 0))
    if ended.get("reason") == "OOMKilled":
        limit = f" ({_memory_limit(pod, container)})" if _memory_limit(pod, container) else ""
        return PodHealth(False, reasons.OUT_OF_MEMORY, f"the container exceeded its memory limit{limit}", True)
    named = failure_in(str(ended.get("message", "")))
    if named is not None:
        return PodHealth(False, named[0], named[1], named[0] not in _PASSING)
    message = f"the process exited with status {code} ({EXITS.get(code, 'unknown')})"
    if waiting or int(container.get("restartCount", 0)) >= MANY_RESTARTS:
        return PodHealth(False, reasons.CRASH_LOOP, message, True)
    return PodHealth(False, reasons.RESTARTING, message)


def _memory_limit(pod: Json, container: Json) -> str:
    """Return a container's memory limit, and where it comes from if the spec does not say it; empty without one."""
    limit = str(container.get("resources", {}).get("limits", {}).get("memory", ""))
    defaulted = pod["metadata"].get("annotations", {}).get("kubernetes.io/limit-ranger", "")
    of_this = any("memory limit" in part and container["name"] in part for part in defaulted.split(";"))
    return f"{limit}, set by a LimitRange of the namespace; set resources.limits" if limit and of_this else limit


def _of_company(pod: Json, containers: Iterable[Json]) -> PodHealth | None:
    """Report the first of the other containers that is in trouble; nothing that the federation itself failed for."""
    for each in containers:
        problem = _crash_of(pod, each) or _held_up(pod, each)
        if problem is not None:
            return PodHealth(False, problem.reason, f'container "{each["name"]}": {problem.message}')
    return None


def _not_started(
    pod: Json, name: str, container: Json | None, claims: Mapping[str, str] | None, now: float
) -> PodHealth:
    held_up = _held_up(pod, {"name": name, **(container or {})})
    first = _of_company(pod, pod.get("status", {}).get("initContainerStatuses", ()))
    starting = PodHealth(False, reasons.STARTING, "the node is pulling the image or creating the container")
    return held_up or first or _queueing_of(pod) or _scheduling_failure(pod, claims, now) or starting


def _held_up(pod: Json, container: Json) -> PodHealth | None:
    """Report what keeps a container from starting."""
    waiting: Json = container.get("state", {}).get("waiting", {})
    reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
    if reason in _PULLING:
        spec = pod["spec"]
        images = {
            each["name"]: each.get("image", "")
            for each in (*spec.get("containers", ()), *spec.get("initContainers", ()))
        }
        image = images.get(container["name"], "")
        detail = message.rpartition("ErrImagePull: ")[2] if reason == "ImagePullBackOff" and ":" in message else message
        shown = "" if detail.startswith("Back-off") else f": {detail}"
        return PodHealth(False, reasons.IMAGE_PULL, f'image "{image}" cannot be pulled{shown}')
    if reason == "CreateContainerConfigError":
        return _configuration_missing(message)
    if reason in ("CreateContainerError", "RunContainerError", "PostStartHookError"):
        return PodHealth(False, reasons.CONTAINER_ERROR, message)
    return None


def _configuration_missing(message: str) -> PodHealth:
    for word, reason in (("secret", reasons.SECRET_MISSING), ("configmap", reasons.CONFIG_MISSING)):
        if re.search(rf"\b{word}\b", message, re.IGNORECASE):
            return PodHealth(False, reason, message)
    return PodHealth(False, reasons.CONTAINER_ERROR, message)


def _queueing_of(pod: Json) -> PodHealth | None:
    gates = [str(gate["name"]) for gate in pod["spec"].get("schedulingGates", ())]
    if not gates:
        return None
    queue = pod["metadata"].get("labels", {}).get(QUEUE_LABEL)
    by_kueue = f'the pod waits in Kueue\'s queue "{queue}" to be admitted'
    return PodHealth(False, reasons.QUEUED, by_kueue if QUEUE_GATE in gates else f"held by {', '.join(gates)}")


def _scheduling_failure(pod: Json, claims: Mapping[str, str] | None, now: float) -> PodHealth | None:
    scheduled: Mapping[str, Any] = next(
        (each for each in pod.get("status", {}).get("conditions", ()) if each["type"] == "PodScheduled"), {}
    )
    message = (
        str(scheduled.get("message", "")).partition(" preemption:")[0] if scheduled.get("status") == "False" else ""
    )
    missing = re.search(r'persistentvolumeclaim "([^"]+)" not found', message)
    names = [missing[1]] if missing else []
    created = pod["metadata"].get("creationTimestamp")
    if claims is not None and created is not None and now - seconds_of(created) > YOUNG_SECONDS:
        names += [name for name in _claims(pod) if name not in claims]
    if names:
        return PodHealth(False, reasons.VOLUME_MISSING, f'volume claim "{names[0]}" does not exist in this namespace')
    pending = [name for name in _claims(pod) if claims is not None and claims.get(name, "Bound") != "Bound"]
    if "PersistentVolumeClaim" in message and pending:
        return PodHealth(False, reasons.VOLUME_PENDING, f'volume claim "{pending[0]}" has no volume yet: {message}')
    if "unbound immediate PersistentVolumeClaims" in message:
        return PodHealth(False, reasons.VOLUME_PENDING, message)
    lacking = re.search(r"Insufficient ([a-z0-9.-]+/[A-Za-z0-9._-]+)", message)
    if lacking:
        return PodHealth(False, reasons.UNSCHEDULABLE, f"no node has a free {lacking[1].rstrip('.')}: {message}")
    return PodHealth(False, reasons.UNSCHEDULABLE, message) if message else None


def _claims(pod: Json) -> Iterator[str]:
    for volume in pod["spec"].get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            yield str(volume["persistentVolumeClaim"]["claimName"])

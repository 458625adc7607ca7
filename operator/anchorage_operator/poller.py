"""Polls the status of every running server and triggers a reconcile when it changed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from anchorage.api.errors import AnchorageError
from anchorage.api.status import ConditionType, FederationStatus, end_of, find_condition
from anchorage.transport.kube.client import ApiError
from anchorage.transport.kube.resources import Json
from anchorage.transport.server_client import CertificateRequest, Member, ServerClient, ServerError
from anchorage_operator.cache import Cache, Key, Ref
from anchorage_operator.failed_reconcile import failure_message
from anchorage_operator.identity import Identity
from anchorage_operator.names import COMPONENT_LABEL, CONTROL_PORT, server_name
from anchorage_operator.observed import Unreachable
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.work_queue import WorkQueue

QUICK_SECONDS = 1.0
QUICK_FOR_SECONDS = 120.0
"""Poll interval, and how long it applies after the pod started, so that enrolment and the first round are not delayed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """The last response of a server."""

    report: FederationStatus | Unreachable
    """The server's status, or why it is unknown."""
    members: tuple[Member, ...] | None = None
    """Its list of members; None if it did not respond."""
    requests: tuple[CertificateRequest, ...] = field(default=())
    """Signing requests that wait at the server."""
    committed: bool = False
    """Whether a round was committed since the answer before."""


@dataclass(eq=False)
class Poller:
    """Polls servers."""

    cache: Cache
    """Says which servers run."""
    identity: Identity
    """Issues the certificate to ask with."""
    settings: OperatorSettings
    """How often, and the cluster's domain."""
    queue: WorkQueue[Key]
    """Of the servers to poll."""
    wake: Callable[[Key], None]
    """Told the federation whose server said something new."""
    now: Callable[[], float]
    """Seconds since the epoch."""
    connect: Callable[..., ServerClient] = ServerClient
    """Makes the client of a server."""
    before_write: Callable[[], None] = lambda: None
    """Called before a server is told anything; what it raises is raised instead."""
    _answers: dict[Key, Answer] = field(default_factory=dict, init=False)
    _clients: dict[Key, ServerClient] = field(default_factory=dict, init=False)
    _begun: dict[Key, float] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def latest(self, key: Key, pods: list[Json]) -> Answer | None:
        """Return the last response of the federation's server and ensure that it is polled; None if none of its pods is running.

        Parameters
        ----------
        key : Key
            The federation.
        pods : list of Json
            Its pods.
        """
        with self._lock:
            answer = self._answers.get(key)
            polled = key in self._clients
        if not _has_running_server(pods):
            return None
        if not polled:
            self.queue.add(key)
        return answer

    def client(self, key: Key) -> ServerClient:
        """Return the client for a federation's server.

        Raises
        ------
        ApiError, AnchorageError
            There is no certificate to ask it with.
        """
        name = f"{server_name(key.federation)}.{key.namespace}.svc"
        service = self.cache.get(Ref("Service", key.namespace, server_name(key.federation))) or {}
        address = service.get("spec", {}).get("clusterIP") or f"{name}.{self.settings.cluster_domain}"
        context = self.identity.operator_tls(key)
        with self._lock:
            client = self._clients.get(key)
            if client is None or client.address != address or client.context is not context:
                if client:
                    client.close()
                client = self._clients[key] = self.connect(address, CONTROL_PORT, name, context)
        return client

    def put_members(self, key: Key, members: tuple[Member, ...], generation: int) -> None:
        """Send the list of members to a server.

        Raises
        ------
        ApiError, AnchorageError, ServerError
            There is no certificate to ask it with, or it did not answer.
        """
        self.before_write()
        self.client(key).put_members(members, generation)
        with self._lock:
            if key in self._answers:
                self._answers[key] = replace(self._answers[key], members=members)

    def put_answers(self, key: Key, answers: Sequence[Mapping[str, str]]) -> None:
        """Answer signing requests that wait at a server. Raises as `put_members`."""
        self.before_write()
        self.client(key).put_answers(answers)
        answered = {answer["id"] for answer in answers}
        with self._lock:
            if key in self._answers:
                unanswered = tuple(request for request in self._answers[key].requests if request.id not in answered)
                self._answers[key] = replace(self._answers[key], requests=unanswered)

    def poll(self, key: Key) -> float | None:
        """Poll one server; return the seconds until the next poll, None if none of its pods is running.

        Raises
        ------
        ApiError
            There is no certificate to ask it with.
        """
        if not _has_running_server(self.cache.pods(key)):
            self.forget(key)
            return None
        before = self._answers.get(key)
        try:
            answer = self._ask(key, before)
        except ApiError:
            raise
        except Exception as error:  # raised again, and told meanwhile
            self._note_defect(key, before, error)
            raise
        with self._lock:
            self._answers[key] = answer
        if before is None or _without_time(before) != _without_time(answer):
            self.wake(key)
        if (
            isinstance(answer.report, FederationStatus)
            and end_of(answer.report.conditions) is not None
            and not _sends(answer.report)
            and not answer.requests
        ):
            return float(max(self.settings.poll_seconds, self.settings.resync_seconds))
        young = self.now() - self._begun.setdefault(key, self.now()) < QUICK_FOR_SECONDS
        return min(QUICK_SECONDS, self.settings.poll_seconds) if young else float(self.settings.poll_seconds)

    def _note_defect(self, key: Key, before: Answer | None, error: Exception) -> None:
        """Let the federation's conditions say that its server could not be asked for an error of the operator's own."""
        known = before.report if before and isinstance(before.report, Unreachable) else None
        failure = Unreachable("InternalError", failure_message(error), known.since if known else self.now())
        with self._lock:
            self._answers[key] = Answer(failure)
        if known is None:
            self.wake(key)

    def forget(self, key: Key) -> None:
        """Close the connection to a server that no longer exists."""
        with self._lock:
            client = self._clients.pop(key, None)
            self._answers.pop(key, None)
            self._begun.pop(key, None)
        if client:
            client.close()

    def _ask(self, key: Key, before: Answer | None) -> Answer:
        try:
            client = self.client(key)
            report, last = client.status(), before.report if before else None
            committed = isinstance(last, FederationStatus) and report.round > last.round
            return Answer(report, client.members(), client.requests(), committed)
        except ServerError as error:
            reason, message = error.reason, error.message
        except ApiError:
            raise
        except AnchorageError as error:
            reason, message = error.failure.reason, error.message
        if reason == "CertificateNotTrusted":
            self.identity.forget(key)  # the authority may be another one than the one that was read
        known = before.report if before and isinstance(before.report, Unreachable) else None
        if known is None:
            _log.info("the server does not answer", extra={"federation": key, "reason": reason, "detail": message})
        return Answer(Unreachable(reason, message, known.since if known else self.now()))


def _sends(report: FederationStatus) -> bool:
    """Return whether the server waits for MLflow, which soon ends."""
    tracked = find_condition(report.conditions, ConditionType.TRACKED)
    return tracked is not None and tracked.status == "Unknown"


def _has_running_server(pods: list[Json]) -> bool:
    for pod in pods:
        labels = pod["metadata"].get("labels", {})
        if labels.get(COMPONENT_LABEL) == "server" and pod.get("status", {}).get("phase") == "Running":
            return True
    return False


def _without_time(answer: Answer) -> Answer:
    """Return an answer without values that change constantly."""
    if isinstance(answer.report, Unreachable):
        return replace(answer, report=replace(answer.report, message=""))
    return replace(answer, committed=False, report=answer.report.model_copy(update={"last_updated_time": None}))

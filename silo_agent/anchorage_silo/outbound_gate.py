"""The only way out of the hospital: the policy checks and the audit log records every outbound message."""

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from anchorage.api.errors import CATALOGUE, AnchorageError, silo
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.method import ResolvedMethod
from anchorage.api.piece_faults import without_text
from anchorage.engine.accounting import Mechanism
from anchorage.engine.repeating import repetitions_of
from anchorage.methods.preset import auxiliary_arrays
from anchorage.transport.bounds import check_announcement, check_evaluation, one_line
from anchorage.transport.link import ServerLink
from anchorage.transport.messages import Announcement, Evaluation, Order, Task, TaskKind
from anchorage.transport.secure_aggregation.member import ProtocolError
from anchorage.transport.secure_aggregation.wire import Lost, content_of, read
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest
from anchorage.transport.tensors.layout import LORA, MOMENTS, Layout
from anchorage_silo.audit import AuditLog
from anchorage_silo.budget import BudgetGuard
from anchorage_silo.limits import Limits
from anchorage_silo.policy import Policy
from anchorage_silo.state import AgentState

TOLD_CODES = ("ANC-13", "ANC-21", "ANC-22")
"""Prefixes of failures whose own message the server receives, of learning, transfer and policy; of all others, whose messages name files, it
receives the catalogue's text."""
_PATH = re.compile(r"(?<![\w.])[~/\\]|\b[A-Za-z]:[\\/]")

_log = logging.getLogger(__name__)


def extras_of(layouts: Iterable[Layout]) -> list[str]:
    """Return what updates of these layouts carry beside the network's parameters, in a policy's vocabulary."""
    beside = {name for layout in layouts for name in layout.by_name.keys() - layout.of_network().by_name.keys()}
    return sorted(
        {"moments" if name.startswith(MOMENTS) else "control" for name in beside if not name.startswith(LORA)}
    )


@dataclass(eq=False)
class OutboundGate:
    """A `ServerLink` that enforces the hospital's policy and records every outbound message in the audit log.

    `methods` are the methods of all stages of the run, as its description resolves them, and `needed` the least that it needs. `update_extras`
    names what an update carries beside the network's parameters, in the policy's vocabulary (``control``, ``moments``). `check_approval` raises
    AnchorageError while the hospital has not approved what it must approve. `guard` keeps the policy's privacy budget.
    `secure` says that updates leave masked. `audit_head` returns the signed head of the audit log, which goes with what is sent.
    """

    link: ServerLink
    policy: Policy
    audit: AuditLog
    methods: Sequence[ResolvedMethod]
    state: AgentState
    needed: Limits
    update_extras: Sequence[str] = ()
    check_approval: Callable[[], None] = lambda: None
    guard: BudgetGuard | None = None
    secure: bool = False
    audit_head: Callable[[], SignedHead | None] = lambda: None
    _cost: Mechanism | None = field(default=None, init=False)
    _progressing: str = field(default="", init=False)
    _scored: dict[str, str] = field(default_factory=dict, init=False)
    _steps: dict[str, tuple[str, str, str]] = field(default_factory=dict, init=False)

    def admit(self, task: Task) -> None:
        """Check a task against the policy before any work on it.

        Raises
        ------
        AnchorageError
            The policy does not allow a method of the run, the content of its updates, or a further round; the hospital has not approved it; its
            privacy budget is spent, or does not account all that is asked for; or it would receive more bytes than the run needs.
        """
        self.check_approval()
        self.needed.check_size(task)
        self.policy.check_secure(self.secure)
        for method in self.methods:
            self.policy.check_method(method)
        self.policy.check_auxiliary_data(self.update_extras)
        if task.kind.step:
            self._admit_step(task)
            return
        if task.kind is TaskKind.TRAIN:
            self.policy.check_rounds(self.audit, self.needed, task.id)
            if (times := repetitions_of(task)) > self.needed.repetitions:
                found = f"task {task.id} asks for {times} trainings, the run's description for {self.needed.repetitions} at most"
                raise AnchorageError(silo.ROUNDS_USED_UP, found)
        else:
            self._scored[task.id] = task.model.digest
            self.policy.check_evaluations(self.audit, self.needed, task.id, task.model.digest)
        if self.guard is not None:
            cost = self.guard.admit(task, self.state.samples, self.update_extras)
            self._cost = cost if task.kind is TaskKind.TRAIN else self._cost

    def _admit_step(self, task: Task) -> None:
        """Check a step of secure aggregation: a round's sum is revealed for one set of silos, or two sums would differ by one silo's update."""
        if task.kind is not TaskKind.REVEAL_SHARES:
            self._steps[task.id] = ("keys", task.id, "")
            return
        try:
            survivors = sorted(read(Lost, content_of(task.auxiliary_data)).survivors)
        except ProtocolError as error:
            raise AnchorageError(silo.SECURE_AGGREGATION_REFUSED, f"{task.id}: {error}") from error
        name, digest = f"{task.round}.reveal", hashlib.sha256(" ".join(survivors).encode()).hexdigest()
        if any(known == name and other != digest for known, other in self.audit.sent("reveal", whole=False)):
            found = f"{task.id}: the sum of round {task.round} was revealed for other silos"
            raise AnchorageError(silo.SECURE_AGGREGATION_REFUSED, found)
        self._steps[task.id] = ("reveal", name, digest)

    def welcome(self) -> str:
        """Return the run's description."""
        return self.link.welcome()

    def next_order(self, timeout: float | None) -> Order | None:
        """Wait for the next order."""
        return self.link.next_order(timeout)

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        """Receive a model."""
        self.link.fetch(manifest, sink)

    def announce(self, announcement: Announcement) -> None:
        """Announce an update.

        Raises
        ------
        AnchorageError
            The policy refuses it, it is out of bounds, or the audit log cannot be written.
        """
        digest = announcement.update.digest if announcement.update else ""
        self.policy.check_rounds(self.audit, self.needed, announcement.task, digest)
        self.policy.check_announcement(announcement)
        check_announcement(announcement, self.state.samples)
        self._check_declared(announcement.auxiliary)
        if self.guard is not None:
            if self._cost is None:
                raise AssertionError(f"task {announcement.task} was not admitted")
            announcement, self.state.epsilon = self.guard.spend(announcement, self._cost, self.state.samples)
        self.audit.record("announce", announcement.task, auxiliary=announcement.auxiliary, digest=digest)
        self.link.announce(replace(announcement, audit_head=self.audit_head()))
        self.state.count_trained(announcement.task)

    def _check_declared(self, names: Iterable[str]) -> None:
        """Refuse auxiliary data that no piece of the run's methods declares: the hospital could not have known of it."""
        declared = {array.name for method in self.methods for array in auxiliary_arrays(method, up=True)}
        if unknown := sorted(name for name in names if not any(fnmatchcase(name, each) for each in declared)):
            found = f"auxiliary data {', '.join(unknown)} is declared by no piece of the run's methods"
            raise AnchorageError(silo.AUXILIARY_DATA_REFUSED, found)

    def push(self, task: str, update: ChunkSource) -> None:
        """Send an update.

        Raises
        ------
        AnchorageError
            The audit log cannot be written.
        """
        manifest = update.manifest
        self.audit.record("update", task, nbytes=manifest.nbytes, digest=manifest.digest)
        self.link.push(task, update)

    def report(self, evaluation: Evaluation) -> None:
        """Send an evaluation.

        Raises
        ------
        AnchorageError
            The policy refuses it, it is out of bounds, or the audit log cannot be written.
        """
        if evaluation.answer:
            kind, name, digest = self._steps.pop(evaluation.task)
            check_evaluation(evaluation, self.state.samples)
            self.audit.record(kind, name, nbytes=len(evaluation.answer), digest=digest)
            self.link.report(replace(evaluation, audit_head=self.audit_head()))
            return
        task, tally, digest = evaluation.task, evaluation.tally, self._scored.pop(evaluation.task, "")
        self.policy.check_evaluations(self.audit, self.needed, task, digest)
        self.policy.check_evaluation(evaluation)
        check_evaluation(evaluation, self.state.samples)
        nbytes = sum(array.nbytes for array in tally.values())
        self.audit.record("evaluation", task, nbytes=nbytes, auxiliary=tuple(tally), digest=digest)
        self.link.report(replace(evaluation, audit_head=self.audit_head()))
        self.state.count("evaluated")

    def fail(self, task: str, code: str, message: str) -> None:
        """Report a failed task: with all details in the local log, without file names and the text of an exception in a piece to the server."""
        self._scored.pop(task, None)
        self._steps.pop(task, None)
        _log.error("%s %s: %s", code, task, message)
        self.audit.record("failure", task, code=code)
        self.state.count("failed")
        message = without_text(message) if code == PIECE_WRONG.code else message
        told = code.startswith(TOLD_CODES if self.guard is None else "ANC-22") and not _PATH.search(message)
        self.link.fail(task, code, one_line(message) if told else CATALOGUE[code].title)

    def progress(self, task: str, done: int, total: int) -> int:
        """Report the progress of a task in steps; return the number of steps committed by the federation.

        The audit log has one entry for all reports on a task that follow one another.
        """
        if task != self._progressing:
            self.audit.record("progress", task)
            self._progressing = task
        if self.guard is not None:  # the number of steps may depend on the images
            done, total = 100 * done // max(total, 1), 100
        return self.link.progress(task, done, total)

    def close(self) -> None:
        """End the connection."""
        self.link.close()

"""The only way out of the hospital: the policy checks and the audit log records every outbound message."""

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from anchorage.api.errors import CATALOGUE, AnchorageError, silo
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.piece import expect
from anchorage.api.piece_faults import without_text
from anchorage.api.task import Task as PredictionTask
from anchorage.engine.hooks import WeightingEngineHooks
from anchorage.engine.repeating import repetitions_of
from anchorage.transport.bounds import check_announcement, check_evaluation, one_line
from anchorage.transport.link import ServerLink
from anchorage.transport.messages import VALIDATION, Announcement, Evaluation, Order, Task, TaskKind
from anchorage.transport.secure_aggregation.member import ProtocolError
from anchorage.transport.secure_aggregation.wire import Lost, content_of, read
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest
from anchorage_silo.audit import AuditLog
from anchorage_silo.budget import BudgetGuard
from anchorage_silo.policy import Policy
from anchorage_silo.redaction import CLEAR_CODES
from anchorage_silo.state import AgentState
from anchorage_silo.verdict import Past, Request, RequestKind, RunTerms, judge

_REQUESTS = {TaskKind.TRAIN: RequestKind.UPDATE, TaskKind.EVALUATE: RequestKind.SCORES}
_PATH = re.compile(r"(?<![\w.])[~/\\]|\b[A-Za-z]:[\\/]")

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class OutboundGate:
    """A `ServerLink` that enforces the hospital's policy and records every outbound message in the audit log.

    `terms` is what the run's description asks of the silo. `scored_by` is the run's prediction task, which knows what of a model's scores is of
    too few images for the policy. `check_approval` raises AnchorageError while the hospital has not approved what it must
    approve; `approved` returns whether it has approved the run, whether or not it must. `guard` keeps the policy's privacy budget. `audit_head`
    returns the signed head of the audit log, which goes with what is sent.
    """

    link: ServerLink
    policy: Policy
    audit: AuditLog
    terms: RunTerms
    state: AgentState
    check_approval: Callable[[], None] = lambda: None
    approved: Callable[[], bool] = lambda: False
    guard: BudgetGuard | None = None
    audit_head: Callable[[], SignedHead | None] = lambda: None
    scored_by: PredictionTask | None = None
    _tasks: dict[str, Request] = field(default_factory=dict, init=False)
    _progressing: str = field(default="", init=False)
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
        self.terms.needed.check_size(task)
        request = Request(
            _REQUESTS.get(task.kind, RequestKind.STEP), self.terms, task.id, task.round, images=self.state.samples
        )
        if task.kind is TaskKind.TRAIN:
            request = replace(request, repetitions=repetitions_of(task))
        elif task.kind is TaskKind.EVALUATE:
            request = replace(request, digest=task.model.digest)
        self._tasks[task.id] = request
        self._judge(request)
        if task.kind.step:
            self._admit_step(task)

    def _judge(self, request: Request) -> None:
        """Raise AnchorageError where the policy refuses the request."""
        past = Past(self.audit, approved=self.approved())
        judge(self.policy, request, past if self.guard is None else replace(past, fits=self.guard.check)).enforce()

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
        if any(known == name and other != digest for known, other in self.audit.read_sent("reveal", all_runs=False)):
            reason = f"{task.id}: the sum of round {task.round} was revealed for other silos"
            raise AnchorageError(silo.SECURE_AGGREGATION_REFUSED, reason)
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
        trained = announcement.samples.get("train", 0)
        fewest = min(trained, announcement.samples.get("smallest_group", trained))
        asked = self._tasks.get(announcement.task) or Request(RequestKind.UPDATE, self.terms, announcement.task)
        request = replace(
            asked,
            digest=digest,
            auxiliary=announcement.auxiliary,
            fewest=fewest,
            update=announcement.trained,
            trained=trained,
        )
        self._judge(request)
        auxiliary_data = self._without_few(announcement.auxiliary_data, asked.round)
        announcement = replace(announcement, auxiliary_data=auxiliary_data)
        check_announcement(announcement, self.state.samples)
        if self.guard is not None:
            if request.round is None:
                raise AssertionError(f"task {announcement.task} was not admitted")
            cost = self.guard.mechanism(request.round, self.state.samples, request.repetitions)
            announcement, self.state.epsilon = self.guard.spend(announcement, cost, self.state.samples)
        facts = {"round": request.round, "fewest": fewest, "trained": trained if announcement.trained else None}
        self.audit.record("announce", announcement.task, auxiliary=announcement.auxiliary, digest=digest, facts=facts)
        self.link.announce(replace(announcement, audit_head=self.audit_head()))
        self.state.count_trained(announcement.task)

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
            self._tasks.pop(evaluation.task, None)
            kind, name, digest = self._steps.pop(evaluation.task)
            check_evaluation(evaluation, self.state.samples)
            self.audit.record(kind, name, nbytes=len(evaluation.answer), digest=digest)
            self.link.report(replace(evaluation, audit_head=self.audit_head()))
            return
        task, fewest = evaluation.task, evaluation.images
        asked = self._tasks.pop(task, None) or Request(RequestKind.SCORES, self.terms, task, digest="")
        evaluation = self._suppress(evaluation, asked.round)
        tally = evaluation.tally
        request = replace(asked, auxiliary=frozenset(tally), fewest=fewest)
        self._judge(request)
        check_evaluation(evaluation, self.state.samples)
        facts, digest = {"round": request.round, "fewest": fewest}, request.digest or ""
        nbytes = sum(array.nbytes for array in tally.values())
        self.audit.record("evaluation", task, nbytes=nbytes, auxiliary=tuple(tally), digest=digest, facts=facts)
        self.link.report(replace(evaluation, audit_head=self.audit_head()))
        self.state.count("evaluated")

    def _suppress(self, evaluation: Evaluation, round_number: int | None) -> Evaluation:
        """Return an evaluation without those parts of a tally that are of fewer images than the policy demands."""
        task, minimum = self.scored_by, self.policy.minimum_samples
        if task is None or minimum is None or set(evaluation.tally) != {array.name for array in task.tally_arrays()}:
            return replace(evaluation, tally=self._without_few(evaluation.tally, round_number))
        return replace(evaluation, tally=task.suppressed(evaluation.tally, minimum))

    def _without_few(self, arrays: Mapping[str, NDArray[Any]], round_number: int | None) -> Mapping[str, NDArray[Any]]:
        """Return arrays in which what the round's weighting counts of a model has no parts of fewer images than the policy demands."""
        minimum = self.policy.minimum_samples
        if VALIDATION not in arrays or minimum is None or round_number is None:
            return arrays
        weighting = expect(self.terms.method(round_number).weighting, WeightingEngineHooks)
        return {**arrays, VALIDATION: weighting.suppressed(arrays[VALIDATION], minimum)}

    def fail(self, task: str, code: str, message: str) -> None:
        """Report a failed task to the server: in its own words where these tell of learning, transfer and policy, else in the catalogue's.

        The log has what the trainer said, which names no image.
        """
        asked = self._tasks.pop(task, None)
        self._steps.pop(task, None)
        _log.error("%s %s: %s", code, task, message)
        facts = {"request": asked.kind, "round": asked.round} if asked is not None else {}
        self.audit.record("failure", task, code=code, facts=facts)
        self.state.count("failed")
        message = without_text(message) if code == PIECE_WRONG.code else message
        in_own_words = code.startswith(CLEAR_CODES if self.guard is None else "ANC-22") and not _PATH.search(message)
        self.link.fail(task, code, one_line(message) if in_own_words else CATALOGUE[code].title)

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

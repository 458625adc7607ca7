"""The asynchronous engine: every arriving update is committed to the global model on its own (methods reference, 6.14; Metis, Algorithm 1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.errors.rounds import (
    BAD_WEIGHT,
    DEADLINE_EXCEEDED,
    OUTLYING_UPDATE,
    SILO_LATE,
    SILO_REMOVED,
)
from anchorage.api.silo_state import SiloState
from anchorage.engine.aggregation import ContributionSum, NonFiniteUpdate
from anchorage.engine.aggregation.norms import norms, outliers
from anchorage.engine.aggregation.weigher import is_weight
from anchorage.engine.engine import Engine
from anchorage.engine.events import RoundStarted, SiloChanged
from anchorage.engine.interfaces import RoundRecord, SiloRecord, SpooledUpdate
from anchorage.engine.stages import Stage
from anchorage.engine.step_counter import StepCounter
from anchorage.transport import messages
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.joined import behind_front
from anchorage.transport.tensors.model import ModelBytes


@dataclass
class OpenUpdate:
    """A silo's train task, from its assignment to its commit.

    `evaluators` are the silos whose score of the whole update is still to come.
    """

    task: messages.Task
    announcement: messages.Announcement | None = None
    update: SpooledUpdate | None = None
    evaluators: set[str] = field(default_factory=set)
    evaluations: list[messages.Evaluation] = field(default_factory=list)
    evaluation_task: str = ""
    scored: ChunkSource | None = None
    """What evaluators fetch."""


class AsynchronousEngine(Engine):
    """One queue of updates; the global model costs O(model) per commit, whatever the number of silos.

    A round is one commit: the update takes the place of the silo's last one, or is mixed into the model (`Strategy.mixing`). The
    committing silo gets the new global model with its next task; the others go on with what they have. A silo that is taken out leaves
    what it had committed in the model.
    """

    def _enter(self, stage: Stage) -> None:
        super()._enter(stage)
        self._steps = StepCounter() if stage.strategy.counts_steps else None
        self._keepers["steps/"] = self._steps

    def _play_all(self) -> RoundRecord:
        record, self._model = self._begin()
        self._stalled: set[str] = set()
        self._silent: set[str] = set()
        self._offered: dict[str, int] = {}
        self._open: dict[str, OpenUpdate] = {}
        self._scored_for: dict[str, str] = {}
        self._record = record
        self._traffic = self.link.traffic()
        self._contributions = dict(self.store.contributions())
        self._norms = {silo: norms(update, self.learner.up) for silo, (_, update) in self._contributions.items()}
        self._sum = ContributionSum(self.learner.up) if self.strategy.mixing is None else None
        if self._sum is not None:
            for silo, (weight, update) in self._contributions.items():
                self._sum.commit(silo, weight, update)
        self._publish_steps()
        if record.round >= self.settings.rounds:  # as where the rounds were lowered to what is committed
            return record
        self._await_quorum()
        for silo in list(self.connected):
            self._assign(silo)
        deadline = self._next_deadline()
        while self._record.round < self.settings.rounds:
            if len(self.connected) < self.settings.min_silos:
                self._await_quorum()
                for silo in self.connected.keys() - self._open.keys():
                    self._assign(silo)
            before = self._record.round
            events: Sequence[messages.Event | None] = self._early.take() or [self._next(deadline)]
            for event in events:
                if event is None:
                    self._give_up_scores()
                else:
                    self._take(event)
            if self._record.round > before:
                deadline = self._next_deadline()
        return self._record

    def _next_deadline(self) -> float:
        return self.clock.now() + self.settings.round_deadline_seconds

    def _assign(self, silo: str) -> None:
        """Give a silo the global model as it is now."""
        number = self._record.round + 1
        auxiliary = self.learner.auxiliary_data(self._model, number)
        if self._steps is not None:
            auxiliary = {**auxiliary, **self._steps.auxiliary_data(silo)}
        task = messages.Task(
            f"{number}.train.{self._model.digest[:16]}",
            messages.TaskKind.TRAIN,
            number,
            self._model.manifest,
            auxiliary,
        )
        self._release_model(silo)
        self._open[silo] = OpenUpdate(task)
        self._stalled.discard(silo)
        self._offer(self._model)
        self.link.assign(silo, task)
        self.observer(RoundStarted(number, [silo]))

    def _release_model(self, silo: str) -> None:
        """Withdraw the model of a silo's task where no other silo works on it."""
        opened = self._open.pop(silo, None)
        if opened is not None:
            self._scored_for.pop(opened.evaluation_task, None)
            self._withdraw(opened.task.model.digest)

    def _offer(self, model: ChunkSource) -> None:
        """Let silos fetch a model or an update, which may have the same bytes, until it is withdrawn as often as it was offered."""
        digest = model.manifest.digest
        count = self._offered.get(digest, 0)
        if count == 0 or isinstance(model, ModelBytes):
            self.link.offer(model)
        self._offered[digest] = count + 1

    def _withdraw(self, digest: str) -> None:
        self._offered[digest] -= 1
        if self._offered[digest] == 0:
            del self._offered[digest]
            self.link.withdraw(digest)

    def _give_up_scores(self) -> None:
        """Commit what waits for scores without those that have not come; their silos are not asked again until they say something.

        Raises
        ------
        AnchorageError
            DeadlineExceeded where no update waits.
        """
        waited = f"{self.settings.round_deadline_seconds:g} s"
        late = {evaluator for opened in self._open.values() for evaluator in opened.evaluators}
        if not late:
            raise AnchorageError(
                DEADLINE_EXCEEDED,
                f"no silo committed within {waited} (spec.protocol.roundDeadlineSeconds): "
                + ", ".join(f"{silo} holds {opened.task.id}" for silo, opened in self._open.items()),
            )
        self._silent |= late
        for evaluator in self._in_order(late):
            self.observer(SiloChanged(evaluator, SiloState.LATE, 0, 0, SILO_LATE.code, f"no score after {waited}"))
            for owner in [o for o, opened in self._open.items() if evaluator in opened.evaluators]:
                self.link.dismiss(evaluator, self._open[owner].evaluation_task, "late")
                self._note_score(owner, evaluator, None)

    def _take(self, event: messages.Event) -> None:
        if isinstance(event, messages.Joined | messages.Announced | messages.Evaluated):
            self._silent.discard(event.silo)
        match event:
            case messages.Joined(silo, profile):
                if silo in self.connected and silo not in self._open and profile.samples > 0:
                    self._assign(silo)
            case messages.Left(silo, _):
                for owner in [o for o, opened in self._open.items() if silo in opened.evaluators]:
                    self._note_score(owner, silo, None)
            case messages.MembersChanged():
                for silo in [s for s in self._open if event.voids(s)]:
                    self._drop(silo)
                for silo in self._in_order({*event.gone} & self.connected.keys() - self._open.keys()):
                    self._assign(silo)
            case messages.Announced(silo, announcement):
                self._hear(silo, announcement)
            case messages.Arrived(silo, task) if silo in self._open and self._open[silo].task.id == task:
                self._arrive(silo)
            case messages.Evaluated(silo, evaluation):
                self._hear_score(silo, evaluation.task, evaluation)
            case messages.TaskFailed(silo, task, code, message):
                self._note_failure(silo, task, code, message)
            case _:
                pass

    def _drop(self, silo: str) -> None:
        """Forget the open work of a silo that was taken out."""
        opened = self._open[silo]
        if opened.evaluators and opened.scored is not None:
            for evaluator in sorted(opened.evaluators):
                self.link.dismiss(evaluator, opened.evaluation_task, SiloState.REMOVED)
            self._withdraw(opened.scored.manifest.digest)
        self.observer(SiloChanged(silo, SiloState.REMOVED, 0, 0, SILO_REMOVED.code, "no member any more"))
        self.link.dismiss(silo, opened.task.id, SiloState.REMOVED)
        self._release_model(silo)

    def _hear(self, silo: str, announcement: messages.Announcement) -> None:
        """Permit the upload of an announced update; its weight is known when it is whole."""
        opened = self._open.get(silo)
        if opened is None or opened.task.id != announcement.task or opened.evaluation_task:
            self.link.dismiss(silo, announcement.task, "not the silo's open task")
            return
        wrong = self._refusal(silo, announcement)
        if wrong is not None:
            self._stall(silo, SiloState.FAILED, wrong.code, wrong.message)
        elif announcement.update is None:
            self._stall(silo, SiloState.INACTIVE, "", "")
        else:
            opened.announcement = announcement
            opened.update = self.store.spool(silo, opened.task.round, announcement)
            self.observer(SiloChanged(silo, SiloState.UPLOADING))
            self.link.permit(silo, announcement.task, opened.update)

    def _arrive(self, silo: str) -> None:
        """Check a whole update; have it scored by the other silos where the weight needs that, then commit it."""
        opened = self._open[silo]
        assert opened.update is not None and opened.announcement is not None
        try:
            new_norms = norms(opened.update, self.learner.up)
        except NonFiniteUpdate as error:
            self._stall(silo, SiloState.FAILED, error.failure.code, error.detail)
            return
        wrong = outliers([new_norms, *(each for other, each in self._norms.items() if other != silo)]).get(0)
        if wrong is not None:
            self._stall(silo, SiloState.FAILED, OUTLYING_UPDATE.code, wrong)
            return
        self._norms[silo] = new_norms
        self.store.keep(silo, opened.task.round, opened.announcement)
        opened.evaluators = self.connected.keys() - {silo} - self._silent if self.strategy.weigher.evaluated else set()
        if not opened.evaluators:
            self._commit_update(silo)
            return
        digest = opened.update.manifest.digest
        opened.evaluation_task = f"{opened.task.round}.evaluate.{silo}.{digest[:16]}"
        self._scored_for[opened.evaluation_task] = silo
        self.observer(SiloChanged(silo, SiloState.EVALUATING))
        opened.scored = scored = behind_front(opened.update, self.learner.up, self._model)
        self._offer(scored)
        kind, manifest = messages.TaskKind.EVALUATE, scored.manifest
        task = messages.Task(opened.evaluation_task, kind, opened.task.round, manifest)
        for evaluator in sorted(opened.evaluators):
            self.link.assign(evaluator, task)

    def _hear_score(self, silo: str, task: str, evaluation: messages.Evaluation | None) -> None:
        """Note a silo's answer to an evaluate task that still waits for it."""
        owner = self._scored_for.get(task)
        if owner is not None and silo in self._open[owner].evaluators:
            self._note_score(owner, silo, evaluation)

    def _note_score(self, owner: str, evaluator: str, evaluation: messages.Evaluation | None) -> None:
        """Note one evaluator's score, None where it cannot come any more; commit the update when it was the last."""
        opened = self._open[owner]
        opened.evaluators.discard(evaluator)
        if evaluation is not None:
            opened.evaluations.append(evaluation)
        if not opened.evaluators and opened.scored is not None:
            self._withdraw(opened.scored.manifest.digest)
            self._commit_update(owner)

    def _note_failure(self, silo: str, task: str, code: str, message: str) -> None:
        self._hear_score(silo, task, None)
        if silo in self._open and self._open[silo].task.id == task:
            self._stall(silo, SiloState.FAILED, code, message)
            if code == PIECE_WRONG.code and not self._open:
                raise AnchorageError(PIECE_WRONG, f"silo {silo}: {message}")

    def _stall(self, silo: str, state: SiloState, code: str, message: str) -> None:
        """Let a silo without a usable update rest until the global model has moved; the same task would only fail again."""
        self.observer(SiloChanged(silo, state, 0, 0, code, message))
        self.link.dismiss(silo, self._open[silo].task.id, state)
        self._release_model(silo)
        self._stalled.add(silo)

    def _commit_update(self, silo: str) -> None:
        """Weigh one update, make the new model of it, and commit that."""
        opened = self._open[silo]
        assert opened.update is not None and opened.announcement is not None
        if self._record.round >= self.settings.rounds:
            return
        weight = self.strategy.weigh({silo: opened.announcement}, {silo: opened.evaluations})[silo]
        if not is_weight(weight):
            self._stall(silo, SiloState.FAILED, BAD_WEIGHT.code, self.strategy.bad_weight(weight))
            return
        received, sent = self.link.traffic()
        number, metrics = self._record.round + 1, dict(opened.announcement.metrics)
        if self.strategy.mixing is not None:
            metrics["staleness"] = number - opened.task.round
            weight = self.strategy.mixing.share(number - opened.task.round)
        if self._steps is not None:
            metrics["staleness"] = self._steps.commit(silo, opened.task, opened.announcement)
        model = self._model_with(silo, opened.update, weight)
        part = SiloRecord(silo, SiloState.COUNTED, self._share(weight), opened.announcement.samples, metrics)
        report = self._evaluate(model, number)
        up, down = received - self._traffic[0], sent - self._traffic[1]
        state = self._method_state()
        self._record = self._commit(number, model, report, state=state, silos=(part,), bytes_up=up, bytes_down=down)
        self._traffic = (received, sent)
        self._model = model
        self._publish_steps()
        self.link.dismiss(silo, opened.task.id, SiloState.COUNTED)
        for waiting in self._in_order({silo, *self._stalled}):
            if waiting in self.connected:
                self._assign(waiting)
            else:
                self._release_model(waiting)

    def _model_with(self, silo: str, update: SpooledUpdate, weight: float) -> ModelBytes:
        """Mix an update into the model, or put it into the sum in the place of the silo's last one."""
        if self.strategy.mixing is not None:
            return self._model.with_tensors(self.strategy.mixing.mix(self._model, update, self.learner.up, weight))
        assert self._sum is not None
        previous_weight, previous = self._contributions.get(silo, (0.0, None))
        self._sum.commit(silo, weight, update, previous, previous_weight)
        self.store.contribute(silo, self._open[silo].task.round, weight)
        self._contributions[silo] = (weight, update)
        mean = self._sum.model()
        return self._model if mean is None else self._model.with_tensors(mean)

    def _share(self, weight: float) -> float:
        """Return the weight of an update that was just put into the model as its share of the model, from 0 to 1."""
        total = self._sum.total if self._sum is not None else 1.0
        return weight / total if total else 0.0

    def _publish_steps(self) -> None:
        if self._steps is not None:
            self.link.publish_steps(self._steps.committed)

    def _in_order(self, silos: set[str]) -> Sequence[str]:
        return [s for s in self.silos if s in silos]

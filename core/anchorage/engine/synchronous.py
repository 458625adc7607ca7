"""The synchronous engine: select, dispatch, announce, weigh, upload, aggregate, server training, evaluate, commit (docs/design/round-protocol.md).

Where silos train from a rounded model (`spec.protocol.modelEncoding`), their updates are measured from that, and the exact model goes on by what
they changed: the exact one is evaluated, committed and exported, for it has what rounding lost.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import (
    BAD_WEIGHT,
    EVALUATION_MISSING,
    OUTLYING_UPDATE,
)
from anchorage.api.silo_state import SiloState
from anchorage.api.task import Tally
from anchorage.api.task import Task as PredictionTask
from anchorage.engine.aggregation import NonFiniteUpdate, UnusableUpdate, weighted_mean
from anchorage.engine.aggregation.norms import FEWEST, norms_of, outliers
from anchorage.engine.aggregation.weigher import is_weight
from anchorage.engine.cohort import OpenRound, sample_cohort
from anchorage.engine.events import RoundStarted, Step, StepBegan
from anchorage.engine.gathering import Gathering
from anchorage.engine.held_out import over_all, report_of, with_scores
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.parties import over_silos
from anchorage.engine.scoring import losses, scores
from anchorage.transport.messages import (
    AuxiliaryData,
    Evaluated,
    Evaluation,
    MembersChanged,
    Report,
    Task,
    TaskFailed,
    TaskKind,
    UpdateFormat,
)
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.encoded import Encoding
from anchorage.transport.tensors.encoded_model import ModelEncoding, RoundedModel, model_encoding
from anchorage.transport.tensors.joined import behind_front, models_in
from anchorage.transport.tensors.large_arrays import split_large
from anchorage.transport.tensors.model import ModelBytes


class SynchronousEngine(Gathering):
    """Every round waits for its cohort, bounded by deadline and quorum.

    The cohort is drawn from the members, connected or not, so that it does not depend on who came first. A silo that was absent from a whole
    round is left out until it connects again, and one that became a member while rounds are played until it connects at all.
    """

    def _play_all(self) -> RoundRecord:
        record, model = self._begin()
        opened: OpenRound | None = None
        if record.round > 0:
            self._absent = self._left_out()
        while record.round < self.settings.rounds:
            if opened is None:
                self.observer(StepBegan(Step.SELECT))
                model = self._go_on(record.round + 1, model)
                self._await_quorum()
                traffic = self.link.traffic()
                if self.strategy.gathers_first:
                    self._gather_first(record.round + 1, model)
                opened = self._dispatch(record.round + 1, model)
                opened.traffic = traffic
            self.observer(RoundStarted(opened.task.round, opened.cohort))
            record, model, opened = self._play(opened, model)
        return record

    def _gather_first(self, number: int, model: ModelBytes) -> None:
        """Have every silo announce what the method needs of all of them before the first local training (FedMix's means).

        Raises
        ------
        AnchorageError
            QuorumLost when too few silos answer.
        """
        auxiliary, _ = split_large({**self.learner.auxiliary_data(model, number), **self.strategy.first_auxiliary()})
        task = Task(f"{number}.announce.{model.digest[:16]}", TaskKind.TRAIN, number, model.manifest, auxiliary)
        opened = OpenRound(task, tuple(self.silos), self.link.traffic())
        self._absent = self._absent or set()
        self._take_kept(opened)
        self.link.offer(model)
        for silo in opened.awaited_silos():
            self.link.assign(silo, task)
        self._gather(opened, barrier=False)
        self._conclude(opened)
        for silo in opened.cohort:
            self.link.dismiss(silo, task.id, opened.states[silo])
        self.link.withdraw(model.digest)
        self.store.release(number)

    def _left_out(self) -> set[str]:
        """Return the silos that were absent when they were last drawn: a server that comes back does not wait for them once more."""
        states = {part.name: part.state for record in self.store.history() for part in record.silos}
        return {silo for silo, state in states.items() if state == SiloState.ABSENT}

    def _play(self, opened: OpenRound, model: ModelBytes) -> tuple[RoundRecord, ModelBytes, OpenRound | None]:
        """Play a dispatched round to its commit; returns its record, the new model, and the next round if it is dispatched already.

        The next round is dispatched before this one is evaluated and written, so that silos do not wait for either: a server that dies in
        between forms the same model again from the updates that it kept.
        """
        number, base = opened.task.round, model if opened.rounded is None else opened.rounded.model
        marks = [("start", self.clock.now())]
        self._gather(opened, self.strategy.weigher.barrier)
        marks.append((Step.SILOS, self.clock.now()))
        evaluations = self._evaluate_at_silos(opened, base) if self.strategy.weigher.evaluated else {}
        mean, weights = self._aggregate(opened, evaluations, base)
        self._conclude(opened)
        if self.strategy.hears_scores:
            self._score_for_memories(opened, base, weights)
        for silo in opened.arrived_silos() if self.strategy.keeps_updates else ():
            self.store.contribute(silo, number, weights[silo])
        marks.append((Step.AGGREGATE, self.clock.now()))
        for digest in {base.digest, *opened.tailored}:
            self.link.withdraw(digest)
        self.observer(StepBegan(Step.SERVER_TRAINING))
        if mean is not None:
            mean = mean if base is model else self._encoding_of(model).exact_mean(mean, model, base)
            mean = self.strategy.step(model.trainable, mean, number, len(opened.arrived_silos()) / len(self.silos))
        new, server_metrics = self.learner.train(model if mean is None else model.with_tensors(mean), number)
        shown = new if self._average is None else self._average.follow(new)
        state = self._method_state()
        marks.append((Step.SERVER, self.clock.now()))
        task = self.settings.held_out_task
        held_out = self._score_held_out(opened, shown, task) if task and self._due(number) else {}
        marks.append((Step.EVALUATE_AT_SILOS, self.clock.now()))
        for silo in opened.cohort:
            self.link.dismiss(silo, opened.task.id, opened.states[silo])
        received, sent = (now - before for now, before in zip(self.link.traffic(), opened.traffic, strict=True))
        following = None
        if self._ahead and number < self._stage.last and len(self.connected) >= self.settings.min_silos:
            following = self._dispatch(number + 1, new)
        marks.append((Step.DISPATCH, self.clock.now()))
        test: Mapping[str, Report] | None = None
        if self.strategy.scores_each_update:
            report = self._score_each(opened, new, self._evaluate)
            scored = self._score_each(opened, new, self.learner.test) if number == self.settings.rounds else None
            test = {"final": scored} if scored is not None and scored.metrics else {}
        else:
            report = self._evaluate(shown, number)
            if task and held_out and (report is None or not report.metrics):
                report = report_of(task, held_out)
        marks.append((Step.EVALUATE, self.clock.now()))
        record = self._commit(
            number,
            shown,
            report,
            metrics={**server_metrics, **(over_all(task, held_out) if task else {}), **self.strategy.metrics()},
            state=state,
            test=test,
            silos=with_scores(task, opened.records(weights), held_out) if task else opened.records(weights),
            seconds={name: t - before for (_, before), (name, t) in pairwise(marks)},
            bytes_up=received,
            bytes_down=sent,
        )
        self.store.release(number)
        return record, new, following

    def _score_each(
        self, opened: OpenRound, model: ModelBytes, scored: Callable[[ModelBytes, int], Report | None]
    ) -> Report | None:
        """Score every silo's own model: each metric's mean and standard deviation over silos (methods reference, 6.1)."""
        reports = [scored(self._own_model(opened, silo, model), opened.task.round) for silo in opened.arrived_silos()]
        return over_silos([report for report in reports if report is not None])

    def _own_model(self, opened: OpenRound, silo: str, model: ModelBytes) -> ModelBytes:
        """Return the global model with a silo's update in place of the aggregate."""
        up = self.learner.up
        return model.with_tensors(weighted_mean(models_in(opened.updates[silo], up)[-1:], [1.0], up))

    def _score_for_memories(self, opened: OpenRound, model: ModelBytes, weights: Mapping[str, float]) -> None:
        """Score every silo's own model that counted; one whose outputs are not finite has no score."""
        self.observer(StepBegan(Step.EVALUATE))
        for silo in [silo for silo in opened.arrived_silos() if weights[silo] > 0]:
            silo_model = self._own_model(opened, silo, model)
            self.strategy.scored(silo, scores(self.learner, silo_model, opened.task.round))

    def _dispatch(self, number: int, model: ModelBytes) -> OpenRound:
        """Select the cohort and give it the task; updates that a server before this one received whole are taken as they are."""
        self.observer(StepBegan(Step.DISPATCH))
        received = self.store.load_updates(number)
        absent = self._absent = (self._absent or set()) - self.connected.keys() - received.keys()
        present = [
            s for s in self.silos if s not in absent and (s not in self.connected or self.connected[s].samples > 0)
        ]
        sampled = sample_cohort(
            self._without_silent(present), self.settings.silos_per_round, self.settings.seed, number
        )
        cohort = self._agree(number, tuple(self.strategy.choose(sampled, self.settings.seed, number)))
        rounded = self._rounded_model(model)
        model = model if rounded is None else rounded.model
        auxiliary, behind = split_large(self.learner.auxiliary_data(model, number))
        task = Task(
            f"{number}.train.{model.digest[:16]}{self._attempt}", TaskKind.TRAIN, number, model.manifest, auxiliary
        )
        sparse, coding = self.strategy.sparse_updates and self.learner.up == model.layout, self.strategy.coding
        encoding = Encoding(coding, model.layout, self.learner.up) if coding and not sparse else None
        base = encoding.base_of(model) if encoding else model if sparse else None
        opened = OpenRound(
            task, cohort, self.link.traffic(), base=base, encoding=encoding, behind=behind, rounded=rounded
        )
        self._take_kept(opened)
        self.link.offer(rounded or model)
        last: dict[str, ChunkSource] = {}
        if self.strategy.keeps_updates:
            last = {name: update for name, (_, update) in self.store.contributions().items() if name in self.silos}
        for silo in opened.awaited_silos():
            self.link.assign(silo, self._task_of(opened, silo, model, last))
        return opened

    def _rounded_model(self, model: ModelBytes) -> RoundedModel | None:
        """Return the model that silos train from; None: the global model itself."""
        return self._encoding_of(model).round_model(model) if self.settings.model_coding else None

    def _encoding_of(self, model: ModelBytes) -> ModelEncoding:
        assert self.settings.model_coding is not None, "a run whose models are rounded"
        return model_encoding(self.settings.model_coding, model.layout.to_json())

    def _agree(self, number: int, cohort: tuple[str, ...]) -> tuple[str, ...]:
        """Return who of a cohort takes part."""
        return cohort

    @property
    def _attempt(self) -> str:
        """What tells a round that is played again from what it was before."""
        return ""

    @property
    def _ahead(self) -> bool:
        """Whether a round is dispatched before the one before it is committed."""
        return self.strategy.ahead

    def _engine_auxiliary_data(self) -> AuxiliaryData:
        """Return the auxiliary data that the engine adds to the method's."""
        return {}

    def _task_of(self, opened: OpenRound, silo: str, model: ModelBytes, last: Mapping[str, ChunkSource]) -> Task:
        """Return a silo's task: the same for all, but for what the strategy tells this one, and what comes behind the model (FedMatch)."""
        number, up = opened.task.round, self.learner.up
        source, silo_arrays, behind = self.strategy.task_for(silo, number, model, up, last, opened.behind)
        auxiliary = {**opened.task.auxiliary_data, **silo_arrays, **self._engine_auxiliary_data()}
        update_format, rounded = opened.update_format, opened.rounded is not None
        if source is not model:  # encodings are of the model of all
            update_format = UpdateFormat.PLAIN if update_format is UpdateFormat.ENCODED else update_format
            rounded = False
            self.link.offer(source)
            opened.tailored.add(source.manifest.digest)
        return replace(
            opened.task,
            model=source.manifest,
            auxiliary_data=auxiliary,
            behind=behind,
            update_format=update_format,
            model_encoded=rounded,
            repetitions=self.strategy.weigher.repetitions_of(silo),
        )

    def _evaluate_at_silos(self, opened: OpenRound, model: ModelBytes) -> Mapping[str, Sequence[Evaluation]]:
        """Have every whole update scored by every other silo of the cohort (methods reference, 6.14); the own score came with the announcement.

        A silo whose update is here is waited for, connected or not: after a restart of the server some come later than others.
        """
        number, auxiliary_data, up = opened.task.round, opened.task.auxiliary_data, self.learner.up
        evaluators = [silo for silo in opened.cohort if silo in self.connected or silo in opened.updates]
        asked, owners = [], {}
        for owner, update in opened.updates.items():
            task = f"{number}.evaluate.{owner}.{update.manifest.digest[:16]}"
            owners[task] = owner
            others = [silo for silo in evaluators if silo != owner]
            scored = behind_front(update, up, model)
            asked.append((Task(task, TaskKind.EVALUATE, number, scored.manifest, auxiliary_data), scored, others))
        evaluations_by_silo: dict[str, list[Evaluation]] = {silo: [] for silo in opened.updates}
        for _, evaluation in self._ask(opened, asked):
            evaluations_by_silo[owners[evaluation.task]].append(evaluation)
        if evaluations_by_silo and not any(evaluations_by_silo.values()) and len(evaluators) > 1:
            raise AnchorageError(
                EVALUATION_MISSING, f"round {number}: none of {', '.join(evaluators)} scored an update"
            )
        return evaluations_by_silo

    def _score_held_out(self, opened: OpenRound, model: ModelBytes, scored_by: PredictionTask) -> Mapping[str, Tally]:
        """Have silos with labels score the new model on images that they never train on; who does not answer in time, or wrongly, is left out."""
        number = opened.task.round
        asked = [silo for silo in opened.cohort if silo in self.connected and self.connected[silo].labels != "None"]
        samples = {silo: self.connected[silo].samples for silo in asked}
        task = f"{number}.score.{model.digest[:16]}"
        question = Task(task, TaskKind.EVALUATE, number, model.manifest, held_out=True)
        answers = self._ask(opened, [(question, model, asked)])
        sound = {silo: each.tally for silo, each in answers if scored_by.is_sound(each.tally, samples[silo])}
        return {silo: sound[silo] for silo in asked if silo in sound}

    def _ask(
        self, opened: OpenRound, questions: Sequence[tuple[Task, ChunkSource, Sequence[str]]]
    ) -> list[tuple[str, Evaluation]]:
        """Give evaluate tasks, each with its model, to silos, and return who answered what until the round's deadline."""
        self.observer(StepBegan(Step.EVALUATE_AT_SILOS))
        answers, awaited = [], set()
        for task, model, silos in questions:
            self.link.offer(model)
            for silo in silos:
                self.link.assign(silo, task)
                awaited.add((silo, task.id))
        deadline = self.clock.now() + self.settings.round_deadline_seconds
        while awaited:
            event = self._next(deadline)
            match event:
                case None:
                    break
                case Evaluated(silo, evaluation) if (silo, evaluation.task) in awaited:
                    awaited.discard((silo, evaluation.task))
                    answers.append((silo, evaluation))
                case TaskFailed(silo, task_id, _, _):
                    awaited.discard((silo, task_id))
                case MembersChanged():
                    self._take(opened, event, barrier=False)
                    awaited = {(silo, task_id) for silo, task_id in awaited if not event.voids(silo)}
                case _:
                    self._take(opened, event, barrier=False)
        for silo, task_id in awaited:
            self.link.dismiss(silo, task_id, "late")
        for digest in {model.manifest.digest for _, model, _ in questions}:
            self.link.withdraw(digest)
        return answers

    def _aggregate(
        self, opened: OpenRound, evaluations: Mapping[str, Sequence[Evaluation]], model: ModelBytes
    ) -> tuple[ModelBytes | None, Mapping[str, float]]:
        """Return the aggregate of the whole updates, None where there is none, and the normalised weights.

        An update that is not finite or far longer than the others, or whose weight is not a finite number from 0 up, is taken out and named;
        the rest is weighed again.
        """
        self.observer(StepBegan(Step.AGGREGATE))
        while silos := opened.arrived_silos():
            try:
                updates_by_silo = {silo: opened.updates[silo] for silo in silos}
                self.strategy.weigher.measure(updates_by_silo, opened.announcements, self.learner.up)
                weights = self._weights(opened, evaluations)
                if weights is None:
                    continue
                total = math.fsum(weights.values())
                normalised = {silo: w / total for silo, w in weights.items()}
                silos, updates, shares = map(
                    list, zip(*self.strategy.weigher.terms(updates_by_silo, weights), strict=True)
                )
                if self._take_out_outliers(opened, silos, updates, shares):
                    continue
                announced = [opened.announcements[silo] for silo in silos]
                loss = losses(self.learner, opened.task.round)
                mean = self.strategy.aggregate(updates, shares, announced, self.learner.up, model, loss)
            except UnusableUpdate as error:
                self._fail(opened, silos[error.index], SiloState.FAILED, error.failure.code, error.detail)
                self._require_quorum(opened)
                continue
            return mean, normalised
        return None, {}

    def _take_out_outliers(
        self, opened: OpenRound, silos: Sequence[str], updates: Sequence[ChunkSource], shares: Sequence[float]
    ) -> bool:
        """Take out silos whose updates are far longer than the others; returns whether there are any.

        Raises
        ------
        NonFiniteUpdate
            An update with a weight holds a number that is not finite.
        """
        counted = [index for index, share in enumerate(shares) if share > 0]
        if len(counted) < FEWEST or not self.strategy.compares_norms:
            return False
        try:
            outlier_messages = outliers(norms_of([updates[index] for index in counted], self.learner.up))
        except NonFiniteUpdate as error:
            raise NonFiniteUpdate(counted[error.index], error.tensor) from error
        for position, message in outlier_messages.items():
            self._fail(opened, silos[counted[position]], SiloState.FAILED, OUTLYING_UPDATE.code, message)
        if outlier_messages:
            self._require_quorum(opened)
        return bool(outlier_messages)

    def _weights(
        self, opened: OpenRound, evaluations: Mapping[str, Sequence[Evaluation]]
    ) -> Mapping[str, float] | None:
        """Weigh the whole updates; None after a silo with a bad weight was taken out. All zero means uniform.

        Methods reference, section 1, rule 2.
        """
        silos = opened.arrived_silos()
        weights = self.strategy.weigh(
            {s: opened.announcements[s] for s in silos}, {s: evaluations.get(s, ()) for s in silos}
        )
        for silo in silos:
            if not is_weight(weights[silo]):
                self._fail(opened, silo, SiloState.FAILED, BAD_WEIGHT.code, self.strategy.bad_weight(weights[silo]))
                self._require_quorum(opened)
                return None
        if not any(weights[silo] > 0 for silo in silos):
            return dict.fromkeys(silos, 1.0)
        return {silo: weights[silo] for silo in silos}

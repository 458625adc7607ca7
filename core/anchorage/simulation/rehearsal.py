"""A federation's rounds, played before it starts: engine, layouts and messages are a run's own, trainings are cut short, then only repeated."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from anchorage.api.fact import Fact
from anchorage.api.model_card import Assessment
from anchorage.api.run import RunDescription
from anchorage.engine.interfaces import ServerLearner, SiloLearner
from anchorage.engine.repeating import repetitions_of
from anchorage.learning.optimisers import PlainSgd
from anchorage.learning.randomness import generator
from anchorage.learning.stepping import clock, trial
from anchorage.learning.weights import without_beside
from anchorage.simulation.silos import Learners
from anchorage.transport.messages import (
    Announcement,
    AuxiliaryData,
    Bytes,
    Evaluation,
    Out,
    Progress,
    Report,
    Task,
    TaskKind,
    UpdateFormat,
)
from anchorage.transport.tensors.chunks import LateManifest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes, array_dtype, read_arrays, write_arrays

TIMES = 2
"""How often each kind of work is done in earnest: the first time also warms up what it needs."""

layout_of = cache(Layout.from_json)
"""Reads a layout once."""

Kind = tuple[object, ...]
"""What tells one kind of task from another."""


@dataclass
class Trials:
    """How much is tried in earnest, and what came out."""

    seconds: float
    """Time that all trials together may take; what nobody has tried yet is tried all the same. 0: as little as possible."""
    training_seconds: float
    """Time after which a training is cut."""
    silos: dict[int, dict[str, float]] = field(default_factory=dict)
    """Seconds that each silo's work in a round takes."""
    server: dict[int, float] = field(default_factory=dict)
    """Seconds that the server's training and evaluation in a round take; of round 0, what is before round 1."""
    largest: "tuple[str, Task, Bytes] | None" = None
    """The silo with the most images of those that were tried, the last task that it trained for, and its model."""
    behind: int = 0
    """Most bytes of large auxiliary data behind a model that a silo was sent."""
    evaluates: bool = False
    """Whether silos score models."""
    testing: float = 0.0
    """Seconds that scoring the test images at the end takes."""
    spent: float = 0.0

    @property
    def goes_on(self) -> bool:
        """Whether there is time left."""
        return self.spent < self.seconds

    @contextmanager
    def time_block(self) -> Iterator[list[float]]:
        """Cut the trainings of the block, and put into the list how long it would have taken."""
        begun, durations = clock(), list[float]()
        with trial(self.training_seconds, least=2 if self.seconds else 1) as cutting:
            yield durations
        duration = clock() - begun
        self.spent += duration
        durations.append(duration + cutting.missing)

    def note_silo(self, silo: str, round_number: int, seconds: float) -> None:
        """Add to a silo's time in a round."""
        of_round = self.silos.setdefault(round_number, {})
        of_round[silo] = of_round.get(silo, 0.0) + seconds

    def note_server(self, round_number: int, seconds: float) -> None:
        """Add to the server's time in a round."""
        self.server[round_number] = self.server.get(round_number, 0.0) + seconds


@dataclass
class _Done:
    """Work that a silo did in earnest."""

    silo: str
    seconds: float
    steps: int
    result: Any
    times: int = 1
    delta: Bytes | None = None
    """Exclusive or of the update and the model, where updates travel as differences: how far they can be packed depends on a training."""

    @property
    def repeatable(self) -> bool:
        """Whether another silo's would have the same size."""
        return not isinstance(self.result, Announcement) or not self.result.behind.tensors


class RehearsedLearners:
    """Learners of silos that work in earnest at first (`anchorage.simulation.silos.Learners`).

    Parameters
    ----------
    learners : callable
        The real ones.
    run : RunDescription
        The run.
    labels, samples : mapping
        Of every silo: its ``spec.labels``, and how many images it has.
    trials : Trials
        What is tried, and gets what comes out.
    """

    def __init__(
        self,
        learners: Learners,
        run: RunDescription,
        labels: Mapping[str, str],
        samples: Mapping[str, int],
        trials: Trials,
    ) -> None:
        self.run, self.trials = run, trials
        self._learners, self._labels, self._samples = learners, labels, samples
        self._work_of_silo: dict[tuple[str, Kind], _Done] = {}
        self._alike: dict[tuple[str, Kind], _Done] = {}

    def __call__(self, silo: str) -> SiloLearner:
        """Return a silo's learner."""
        return _Rehearsed(self, silo)

    def work(self, silo: str, task: Task, earnest: Callable[[SiloLearner], Any]) -> tuple[_Done, bool]:
        """Return what a silo does with a task, and whether it was done in earnest just now."""
        kind, trials = self._kind(task), self.trials
        trials.behind = max(trials.behind, task.behind.nbytes)
        trials.evaluates = trials.evaluates or task.kind is TaskKind.EVALUATE
        known = self._work_of_silo.get((silo, kind))
        alike = known or self._alike.get((self._labels[silo], kind))
        if alike is not None and (not trials.goes_on or (known is not None and known.times >= TIMES)):
            ratio = self._samples[silo] / max(1, self._samples[alike.silo])
            trials.note_silo(silo, task.round, alike.seconds * ratio)
            return alike, False
        begun = clock()
        learner = self._learners(silo)
        trials.spent += clock() - begun  # images are read
        with trials.time_block() as seconds:
            result, steps = earnest(learner)
        done = _Done(silo, seconds[0], steps, result, known.times + 1 if known else 1)
        trials.note_silo(silo, task.round, done.seconds)
        if done.repeatable:
            self._work_of_silo[silo, kind] = self._alike[self._labels[silo], kind] = done
        return done, True

    def keep(self, silo: str, task: Task, model: Bytes) -> None:
        """Note what a silo trained for, where it has the most images."""
        largest = self.trials.largest
        if largest is None or self._samples[silo] >= self._samples[largest[0]]:
            self.trials.largest = silo, task, model.copy()

    def _kind(self, task: Task) -> Kind:
        """Tell tasks apart by stage, and by what they are told: names, flags, and how often to train."""
        stage = sum(task.round > end for end in self.run.ends[:-1])
        array_flags = sorted((name, _flag(array)) for name, array in task.auxiliary_data.items())
        array_flags += [("held_out", int(task.held_out)), ("repetitions", task.repetitions)]
        return stage, task.kind, tuple(array_flags)


def _flag(array: NDArray[Any]) -> int:
    return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype == np.uint8 else -1


@dataclass
class _Rehearsed:
    """One silo's learner (`SiloLearner`)."""

    learners: RehearsedLearners
    silo: str

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train in earnest, cut short, or announce again what was announced for a task of this kind."""
        total = 0

        def hear_progress(done: int, of: int) -> int:
            nonlocal total
            total = of
            return progress(done, of)

        done, fresh = self.learners.work(
            self.silo, task, lambda learner: (learner.train(task, model, out, hear_progress), total)
        )
        progress(done.steps, done.steps)
        announcement: Announcement = done.result
        run = self.learners.run.stage(task.round)
        if fresh:
            self.learners.keep(self.silo, task, model)
            if task.update_format is UpdateFormat.DIFFERENCES and announcement.update is not None:
                done.delta = out(announcement.update.nbytes) ^ model[: announcement.update.nbytes]
            if self.learners.trials.seconds or announcement.behind.tensors:
                return announcement
        unlabelled = announcement.samples.get("unlabelled", 0)
        if unlabelled and not announcement.samples["selected"] and Fact.PSEUDO_LABELS in run.method.facts():
            announcement = _accepting(announcement, unlabelled)
        elif announcement.update is None:
            return replace(announcement, task=task.id)
        up = layout_of(run.up)
        update = out(up.nbytes * repetitions_of(task))
        if done.delta is not None:
            update[:] = model[: update.nbytes] ^ done.delta
        for start in range(0, update.nbytes if done.delta is None else 0, up.nbytes):
            write_arrays(up, update[start : start + up.nbytes], self._changed_update(up, task, model))
        return replace(announcement, task=task.id, update=LateManifest(up.digest, update))

    def _changed_update(self, up: Layout, task: Task, model: Bytes) -> dict[str, NDArray[Any]]:
        """Return an update in which everything changed that a training would: the model as received, moved a little by each silo its own way."""
        down = layout_of(self.learners.run.stage(task.round).down)
        layout = next((known for known in (down, without_beside(down)) if known.digest == task.model.layout), down)
        received, share = read_arrays(layout, model), 1 + generator(0, self.silo, task.round).random()
        empty = {t.name: np.zeros(t.shape, array_dtype(t.dtype)) for t in up.tensors if t.name not in received}
        return {t.name: move_numbers({**received, **empty}[t.name], share) for t in up.tensors}

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Score in earnest, or answer as before."""
        done, _ = self.learners.work(self.silo, task, lambda learner: (learner.evaluate(task, model), 0))
        evaluation: Evaluation = done.result
        return replace(evaluation, task=task.id)


class RehearsedServer:
    """The server's learner (`anchorage.engine.interfaces.ServerLearner`): works in earnest in its first rounds.

    Parameters
    ----------
    learner : ServerLearner
        The real one.
    trials : Trials
        What is tried, and gets what comes out.
    """

    def __init__(self, learner: ServerLearner, trials: Trials) -> None:
        self.down, self.up = learner.down, learner.up
        self._learner, self._trials = learner, trials
        self._done: dict[str, tuple[int, float, Any]] = {}

    def initialise(self) -> ModelBytes:
        """Return the model of round 0."""
        return self._begin(self._learner.initialise)

    def adopt(self, model: ModelBytes) -> ModelBytes:
        """Return the model that a stage begins with."""
        return self._begin(lambda: self._learner.adopt(model))

    def _begin(self, begin: Callable[[], ModelBytes]) -> ModelBytes:
        with self._trials.time_block() as seconds:
            model = begin()
        self._trials.note_server(0, seconds[0])
        return model

    def auxiliary_data(self, model: ModelBytes, round_number: int) -> AuxiliaryData:
        """Return what travels down beside the model."""
        auxiliary_data: AuxiliaryData = self._work(
            "tell", round_number, lambda: self._learner.auxiliary_data(model, round_number)
        )
        return auxiliary_data

    def train(self, model: ModelBytes, round_number: int) -> tuple[ModelBytes, Mapping[str, float]]:
        """Train in earnest, or move every number of the model where the method trains."""
        before = self._done.get("train", (0,))[0]
        trained, metrics = self._work("train", round_number, lambda: self._learner.train(model, round_number))
        if self._done["train"][0] > before:
            return trained, metrics
        if not metrics:
            return model, metrics
        part = model.trainable
        arrays = {name: move_numbers(array) for name, array in part.arrays().items()}
        return model.with_tensors(ModelBytes.from_arrays(part.layout, arrays)), metrics

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        """Score on the validation images, or answer as before."""
        report: Report = self._work("evaluate", round_number, lambda: self._learner.evaluate(model, round_number))
        return report

    def test(self, model: ModelBytes, round_number: int) -> Report:
        """Score on the test images, once."""
        with self._trials.time_block() as seconds:
            report = self._learner.test(model, round_number)
        self._trials.testing += seconds[0]
        return report

    def assess(self, model: ModelBytes, round_number: int) -> Assessment | None:
        """Nothing is assessed."""
        return None

    def examples(self, model: ModelBytes, round_number: int) -> None:
        """Nothing is drawn."""

    def _work(self, what: str, round_number: int, earnest: Callable[[], Any]) -> Any:
        """Do something in earnest, a few times, else take what came out last."""
        times, seconds, result = self._done.get(what, (0, 0.0, None))
        if times == 0 or (times < TIMES and self._trials.goes_on):
            with self._trials.time_block() as durations:
                result = earnest()
            times, seconds = times + 1, durations[0]
            self._done[what] = times, seconds, result
        self._trials.note_server(round_number, seconds)
        return result


def warm_up() -> None:
    """Have torch load what it loads at the first training of a process, so that no silo's time has it."""
    layer = nn.Conv2d(1, 1, 3)
    layer(torch.zeros(1, 1, 3, 3)).sum().backward()
    PlainSgd([{"params": layer.parameters(), "lr": 0.1, "weight_decay": 0.0}], 0.0).step()


def _accepting(announcement: Announcement, unlabelled: int) -> Announcement:
    """Return what a silo that accepted no pseudo-label yet will announce later, so that its update has a weight."""
    auxiliary_data = {
        name: a if np.nan_to_num(a).any() else np.full_like(a, 0.5 if a.dtype.kind == "f" else 1)
        for name, a in announcement.auxiliary_data.items()
    }
    return replace(
        announcement, samples={**announcement.samples, "selected": unlabelled}, auxiliary_data=auxiliary_data
    )


def move_numbers(array: NDArray[Any], share: float = 1.0) -> NDArray[Any]:
    """Return an array of the same shape and dtype, every number of it a little larger: variances stay variances."""
    step = share * 1e-6 * (np.abs(array) + 1e-3) if array.dtype.kind == "f" else 1
    return np.asarray(array + step, array.dtype)

"""Stages: what the engine plays a part of the rounds with (methods reference, section 3.1)."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

from anchorage.api.piece import expect
from anchorage.api.run import RunDescription
from anchorage.engine.hooks import WeightingEngineHooks
from anchorage.engine.interfaces import ServerLearner, SiloLearner
from anchorage.engine.repeating import RepeatingLearner
from anchorage.engine.settings import RoundSettings
from anchorage.engine.strategy import Strategy
from anchorage.transport.messages import Announcement, Bytes, Evaluation, Out, Progress, Task


@dataclass(frozen=True)
class Stage:
    """A method's part of a run; the parameters of the same names of `anchorage.engine.engine.Engine`.

    `until` is its last round; 0 where the run ends with it.
    """

    settings: RoundSettings
    learner: ServerLearner
    strategy: Strategy
    until: int = 0

    @property
    def last(self) -> int:
        """Its last round."""
        return self.until or self.settings.rounds


class StagedLearner:
    """A silo's learner (`anchorage.engine.interfaces.SiloLearner`) that is another one in every stage.

    Only the learner of the stage that was asked for last is in memory.

    Parameters
    ----------
    ends : sequence of int
        Last rounds of the stages, ascending.
    build : callable
        ``build(number)`` returns the learner of the stage that round `number` belongs to.

    Raises
    ------
    AnchorageError
        The learner of the first stage cannot be built.
    """

    def __init__(self, ends: Sequence[int], build: Callable[[int], SiloLearner]) -> None:
        self._ends, self._build, self._choosing = ends, build, Lock()
        self._index, self._learner = 0, build(1)

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train as the stage of the task's round does."""
        return self._of(task).train(task, model, out, progress)

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Score a model as the stage of the task's round does."""
        return self._of(task).evaluate(task, model)

    def _of(self, task: Task) -> SiloLearner:
        with self._choosing:
            if (index := bisect_left(self._ends, task.round)) != self._index:
                self._index, self._learner = index, self._build(task.round)
            return self._learner


def stage_learner(run: RunDescription, build: Callable[[RunDescription], SiloLearner]) -> SiloLearner:
    """Return a silo's learner of a run: with a warm-up one that is built anew for every stage, by what a silo is told of it.

    Raises
    ------
    AnchorageError
        The learner of the first stage cannot be built.
    """

    def build_stage(stage: RunDescription) -> SiloLearner:
        learner = build(stage)
        return RepeatingLearner(learner) if expect(stage.method.weighting, WeightingEngineHooks).repeats else learner

    return StagedLearner(run.ends, lambda number: build_stage(run.stage(number))) if run.warm_up else build_stage(run)

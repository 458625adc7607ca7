"""A silo that trains more than once in a round, as RSCFed's do that several groups drew (METHODS.md 6.10)."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anchorage.messages import REPETITION, REPETITIONS, Announcement, Evaluation, Task
from anchorage.rounds.interfaces import SiloLearner
from anchorage.tensors.chunks import Manifest


class RepeatingLearner:
    """A `SiloLearner` that has another one train from the same model as often as the task says, each time from the state of the time before.

    Parameters
    ----------
    learner : SiloLearner
        Does the work.
    """

    def __init__(self, learner: SiloLearner) -> None:
        self._learner = learner

    def train(
        self,
        task: Task,
        model: NDArray[np.uint8],
        out: Callable[[int], NDArray[np.uint8]],
        progress: Callable[[int, int], int],
    ) -> Announcement:
        """Train and write the models one behind the other; what is announced beside them is of the last time."""
        times = repetitions_of(task)
        whole = np.empty(0, np.uint8)
        for number in range(times):

            def part(nbytes: int, number: int = number) -> NDArray[np.uint8]:
                nonlocal whole
                whole = whole if whole.nbytes else out(times * nbytes)
                return whole[number * nbytes : (number + 1) * nbytes]

            def said(done: int, total: int, number: int = number) -> int:
                return progress(number * total + done, times * total)

            once = replace(task, side={**task.side, REPETITION: np.array(number)})
            announcement = self._learner.train(once, model, part, said)
        update = announcement.update and Manifest.of(announcement.update.layout, whole)
        return replace(announcement, update=update)

    def evaluate(self, task: Task, model: NDArray[np.uint8]) -> Evaluation:
        """Score a model."""
        return self._learner.evaluate(task, model)


def repetitions_of(task: Task) -> int:
    """Return how often a silo trains for a task."""
    return int(task.side.get(REPETITIONS, 1))

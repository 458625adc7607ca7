"""A silo that trains more than once in a round, as RSCFed's do that several groups drew (methods reference, 6.10)."""

from dataclasses import replace

import numpy as np

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.transfer import MALFORMED_MESSAGE
from anchorage.engine.interfaces import SiloLearner
from anchorage.transport.messages import (
    MOST_REPETITIONS,
    Announcement,
    Bytes,
    Evaluation,
    Out,
    Progress,
    Task,
)
from anchorage.transport.tensors.chunks import LateManifest


class RepeatingLearner:
    """A `SiloLearner` that has another one train from the same model as often as the task says, each time from the state of the time before.

    Parameters
    ----------
    learner : SiloLearner
        Does the work.
    """

    def __init__(self, learner: SiloLearner) -> None:
        self._learner = learner

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train and write the models one behind the other; what is announced beside them is of the last time."""
        times = repetitions_of(task)
        if times == 1:
            return self._learner.train(task, model, out, progress)
        updates_buffer = np.empty(0, np.uint8)
        for number in range(times):

            def part(nbytes: int, number: int = number) -> Bytes:
                nonlocal updates_buffer
                updates_buffer = updates_buffer if updates_buffer.nbytes else out(times * nbytes)
                return updates_buffer[number * nbytes : (number + 1) * nbytes]

            def forward_progress(done: int, total: int, number: int = number) -> int:
                return progress(number * total + done, times * total)

            once = replace(task, repetition=number)
            announcement = self._learner.train(once, model, part, forward_progress)
            if announcement.behind.tensors:
                raise AnchorageError(
                    MALFORMED_MESSAGE, f"task {task.id}: a training that is repeated announces large auxiliary data"
                )
        update = announcement.update and LateManifest(announcement.update.layout, updates_buffer)
        return replace(announcement, update=update)

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Score a model."""
        return self._learner.evaluate(task, model)


def repetitions_of(task: Task) -> int:
    """Return how often a silo trains for a task.

    Raises
    ------
    AnchorageError
        The server asks for more than any method does: memory is taken for each.
    """
    if not 1 <= task.repetitions <= MOST_REPETITIONS:
        detail = f"task {task.id}: repetitions is {task.repetitions}, allowed are 1 to {MOST_REPETITIONS}"
        raise AnchorageError(MALFORMED_MESSAGE, detail)
    return task.repetitions

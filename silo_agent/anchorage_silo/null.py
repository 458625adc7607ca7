"""The benchmark's trainer: adds a constant to every float, as fast as memory allows, without torch."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.messages import Announcement, Evaluation, Task
from anchorage.transport.tensors.chunks import LateManifest
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.segments import Segments


class NullLearner:
    """A `SiloLearner` that computes nothing: every float of the update is the model's plus `step`; other numbers are copied.

    Parameters
    ----------
    down, up : Layout
        Layouts of the model and of the update.
    step : float
        What is added.
    samples : int
        What is reported as ``train``.
    """

    def __init__(self, down: Layout, up: Layout, step: float, samples: int) -> None:
        self._up = up
        self._segments = Segments(down, up)
        self._step = step
        self._samples = samples

    def train(
        self,
        task: Task,
        model: NDArray[np.uint8],
        out: Callable[[int], NDArray[np.uint8]],
        progress: Callable[[int, int], int],
    ) -> Announcement:
        """Write the update in one pass."""
        update = out(self._up.nbytes)
        for old, new, floating in self._segments.walk(model, update):
            if floating:
                np.add(old, new.dtype.type(self._step), out=new)
            else:
                new[:] = old
        return Announcement(task.id, {"train": self._samples}, {}, {}, LateManifest(self._up.digest, update))

    def evaluate(self, task: Task, model: NDArray[np.uint8]) -> Evaluation:
        """Say that every image was classified rightly."""
        return Evaluation(task.id, np.array([self._samples, self._samples], np.int64))

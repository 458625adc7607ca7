"""Clipping and noise on an update, as the hospital's policy asks, before the update is announced."""

import math
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from anchorage.learning.randomness import generator
from anchorage.transport.messages import REPETITION, Announcement, Bytes, Evaluation, Out, Progress, Task
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.segments import FLOATS, Segments

if TYPE_CHECKING:  # the engine behind it is no part of a trainer's process
    from anchorage.engine.interfaces import SiloLearner


@dataclass(eq=False)
class PrivateLearner:
    """A `SiloLearner` whose updates are clipped and noised: model + min(1, clip / |delta|) * delta + N(0, std^2).

    The delta covers all floats of the update together, running statistics included; its Euclidean norm is summed in float64. Variances (tensors named
    ``...running_var``) that the noise made negative become 0, so that the model stays usable.

    `clip_norm` is the maximum norm of the delta (None does not clip), `noise_std` the standard deviation of the noise (None adds none).
    `noise_seed` is for tests; None draws from the operating system, so that no two runs are equal.
    """

    learner: "SiloLearner"
    down: InitVar[Layout]
    up: Layout
    _: KW_ONLY
    clip_norm: float | None
    noise_std: float | None
    noise_seed: int | None

    def __post_init__(self, down: Layout) -> None:
        self._segments = Segments(down, self.up)

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train, then clip and noise the update and announce its new digest."""
        announcement = self.learner.train(task, model, out, progress)
        if announcement.update is None or not announcement.trained:
            return announcement
        whole = out(announcement.update.nbytes)
        update = whole[: self.up.nbytes]
        self._clip(model, update)
        if self.noise_std:
            self._add_noise(task, model, update)
        return replace(announcement, update=Manifest.of(self.up.digest, whole))

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Evaluate a model."""
        return self.learner.evaluate(task, model)

    def _clip(self, model: Bytes, update: Bytes) -> None:
        if self.clip_norm is None:
            return
        squares = 0.0
        for old, new, floating in self._segments.walk(model, update):
            if floating:
                delta = np.subtract(new, old, dtype=np.float64)
                squares += float(delta @ delta)
        norm = math.sqrt(squares)
        if norm > self.clip_norm:  # a non-finite delta stays non-finite, and the server refuses it
            for old, new, floating in self._segments.walk(model, update):
                if floating:
                    delta = np.subtract(new, old, dtype=np.float64)
                    new[:] = old + delta * (self.clip_norm / norm)

    def _add_noise(self, task: Task, model: Bytes, update: Bytes) -> None:
        seed = self.noise_seed
        draws = np.random.default_rng() if seed is None else generator(seed, "noise", task.round, _repetition_of(task))
        for _, new, floating in self._segments.walk(model, update):
            if floating:
                new[:] = new + draws.normal(0.0, self.noise_std or 0.0, new.shape)
        for entry in self.up.tensors:
            if entry.name.endswith("running_var") and entry.dtype in FLOATS:
                variance = update[entry.offset : entry.offset + entry.nbytes].view(FLOATS[entry.dtype])
                np.maximum(variance, 0, out=variance)


def _repetition_of(task: Task) -> str:
    """Return the index of this training within the round, empty for the first: reusing noise would allow subtracting it."""
    return str(int(task.auxiliary_data.get(REPETITION, 0)) or "")

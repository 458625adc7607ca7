"""Clipping and noise on an update, as the hospital's policy asks, before the update is announced."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import NON_FINITE_UPDATE
from anchorage.api.metric_names import NOISE_RATIO
from anchorage.learning.randomness import generator
from anchorage.transport.messages import Announcement, Bytes, Evaluation, Out, Progress, Task
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.protection import Protection
from anchorage_silo.segments import FLOATS, Segments, arrays_of

if TYPE_CHECKING:  # the engine behind it is no part of a trainer's process
    from anchorage.engine.interfaces import SiloLearner

VARIANCES = "running_var"
"""How the names of batch normalisation's running variances end."""
LEAST_VARIANCE = 1e-12
"""What a variance counts as at least where its logarithm is taken."""
MOST_IN_LOGARITHM = 1.0
"""Change of a variance's logarithm in proportion to which it has noise at most: beyond it, a factor that noise drew would be undone by training with
a larger change, which asks for more noise in turn."""


@dataclass(eq=False)
class PrivateLearner:
    """A `SiloLearner` whose updates are clipped and noised: model + min(1, clip / |delta|) * delta + N(0, std^2).

    The delta covers all floats of the update together, running statistics included; its Euclidean norm is summed in float64. Variances (tensors named
    ``...running_var``) that the noise made negative become 0, so that the model stays usable.

    Delta and noise are added in float64, and rounded as a part of the model. Numbers that are no floats stay as received where there is noise.

    Relative noise is added to variances in their logarithms: one that noise took to near 0 would blow up whatever the channel sees. The ratio is told
    with the update's metrics, as it explains a model that learns more slowly. A delta that is not finite cannot be clipped, and tells no size for its
    noise: it stays here. One number is enough, which a hostile server can have in a statistic that training does not use.
    With `Protection.always` the delta is 0 where training gave none, or one that is not finite.
    """

    learner: "SiloLearner"
    down: Layout
    up: Layout
    protection: Protection

    def __post_init__(self) -> None:
        self._segments = Segments(self.down, self.up)

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train, then clip and noise the update and announce its new digest.

        Raises
        ------
        AnchorageError
            NON_FINITE_UPDATE: the update has numbers that are not finite, so that it cannot be protected.
        """
        announcement = self.learner.train(task, model, out, progress)
        if announcement.update is None or not announcement.trained:
            if not self.protection.always:
                return announcement
            payload, scale = out(self.up.nbytes), 0.0
        else:
            payload = out(announcement.update.nbytes)
            scale = self._scale(model, payload[: self.up.nbytes])
        self._change(task, model, payload[: self.up.nbytes], scale)
        noise_metrics = {NOISE_RATIO: self.protection.noise_ratio} if self.protection.noise_ratio else {}
        return replace(
            announcement, update=Manifest.of(self.up.digest, payload), metrics={**announcement.metrics, **noise_metrics}
        )

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Evaluate a model."""
        return self.learner.evaluate(task, model)

    def _scale(self, model: Bytes, update: Bytes) -> float:
        """Return what the delta is multiplied by."""
        if self.protection.clip_norm is None:
            return 1.0
        squares = 0.0
        for old, new, floating in self._segments.walk(model, update):
            if floating:
                delta = np.subtract(new, old, dtype=np.float64)
                squares += float(delta @ delta)
        norm = math.sqrt(squares)
        if not math.isfinite(norm):
            if not self.protection.always:
                raise AnchorageError(NON_FINITE_UPDATE, "its change cannot be scaled down to clipNorm")
            return 0.0
        return min(1.0, self.protection.clip_norm / norm) if norm else 1.0

    def _change(self, task: Task, model: Bytes, update: Bytes, scale: float) -> None:
        """Scale the delta and add noise."""
        if scale == 1 and not self.protection.noise_std and not self.protection.noise_ratio:
            return
        seed = self.protection.noise_seed
        draws = np.random.default_rng() if seed is None else generator(seed, "noise", task.round, _repetition_of(task))
        for old, new, floating in self._segments.walk(model, update):
            if floating:
                delta = scale * np.subtract(new, old, dtype=np.float64) if scale else 0.0
                noise = draws.normal(0.0, self.protection.noise_std, new.shape) if self.protection.noise_std else 0.0
                new[:] = old + (delta + noise)  # rounded after the noise, whatever the weights' size
            elif self.protection.noise_std:
                new[:] = old
        if self.protection.noise_ratio:
            self._add_relative_noise(model, update, draws, self.protection.noise_ratio)
        for entry in self.up.tensors if self.protection.noise_std or self.protection.noise_ratio else ():
            if entry.name.endswith(VARIANCES) and entry.dtype in FLOATS:
                variance = update[entry.offset : entry.offset + entry.nbytes].view(FLOATS[entry.dtype])
                np.maximum(variance, 0, out=variance)

    def _add_relative_noise(self, model: Bytes, update: Bytes, draws: np.random.Generator, ratio: float) -> None:
        """Add to each array noise in proportion to the root mean square of its delta, to variances in their logarithms."""
        for name, old, new in arrays_of(self.down, self.up, model, update):
            variances = name.endswith(VARIANCES)
            before, after = map(_logarithms, (old, new)) if variances else (old, new)
            delta = np.subtract(after, before, dtype=np.float64)
            size = math.sqrt(float(delta @ delta) / max(delta.size, 1))
            if not math.isfinite(size):
                raise AnchorageError(NON_FINITE_UPDATE, f"noise cannot be in proportion to the change of {name}")
            deviation = ratio * (min(size, MOST_IN_LOGARITHM) if variances else size)
            if deviation > 0:
                delta += draws.normal(0.0, deviation, delta.shape)
                new[:] = np.exp(before + delta) if variances else before + delta


def _logarithms(variances: NDArray[Any]) -> NDArray[np.float64]:
    logarithms: NDArray[np.float64] = np.log(np.maximum(variances, LEAST_VARIANCE, dtype=np.float64))
    return logarithms


def _repetition_of(task: Task) -> str:
    """Return the index of this training within the round, empty for the first: reusing noise would allow subtracting it."""
    return str(task.repetition or "")

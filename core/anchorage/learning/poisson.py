"""Batches for which differential privacy is amplified by sampling: each image is in each of them by a coin of its own."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PoissonBatches:
    """Independent samples of the images; as many, and on average as large, as shuffled batches would be."""

    rate: float
    """Probability of each image to be in a batch."""
    steps: int
    """Number of batches."""

    @classmethod
    def of(cls, images: int, batch_size: int, epochs: int, steps: int | None = None) -> "PoissonBatches":
        """Return those for a number of images, images per step, and passes over the images, or steps in their place."""
        step_count = epochs * math.ceil(images / batch_size) if steps is None or not images else steps
        return cls(min(1.0, batch_size / max(images, 1)), step_count)

    def draw(self, images: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Yield the positions 0..images-1 in each batch, int64 [b]; some batches may be empty."""
        for _ in range(self.steps):
            yield np.flatnonzero(rng.random(images) < self.rate)

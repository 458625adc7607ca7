"""The images that a silo keeps from training to score models on (methods reference, 4.4)."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

import numpy as np
from numpy.typing import NDArray


def validation_split(
    labels: NDArray[np.int64], percent: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split a silo's images, stratified by class; images without a label count as one class.

    Per class ``max(1, round(percent * n))`` while it has two images, so that every class keeps a training image; at least one image in
    all where there are two.

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        Classes, -1 without a label.
    percent : int
        Share for validation, 1 to 50.
    rng : Generator
        Draws the images.

    Returns
    -------
    train, validation : ndarray of int64
        Indices, ascending.
    """
    chosen = []
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        if len(members) >= 2:
            chosen.append(rng.permutation(members)[: max(1, int(len(members) * percent / 100 + 0.5))])
    if not chosen and len(labels) >= 2:
        chosen.append(rng.permutation(len(labels))[:1])
    validation = np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)
    return np.setdiff1d(np.arange(len(labels)), validation), validation


class RoundLabels:
    """Pseudo-labels of the validation split in the latest round, made by `train` and awaited by `evaluate` in another thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._pending: int | None = None
        self._known: tuple[int, NDArray[np.int64]] | None = None

    @contextmanager
    def labelling(self, round_number: int) -> Iterator[None]:
        """Mark a round's labels as on their way until they are published or the block ends."""
        with self._changed:
            self._pending = round_number
        try:
            yield
        finally:
            with self._changed:
                self._pending = None
                self._changed.notify_all()

    def publish(self, round_number: int, labels: NDArray[np.int64]) -> None:
        """Give a round's labels, int64 [n], -1 where none was accepted."""
        with self._changed:
            self._pending, self._known = None, (round_number, labels)
            self._changed.notify_all()

    def of(self, round_number: int) -> NDArray[np.int64] | None:
        """Return a round's labels, once they are there if they are on their way; None where that round has none."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending != round_number)
            return self._known[1] if self._known is not None and self._known[0] == round_number else None

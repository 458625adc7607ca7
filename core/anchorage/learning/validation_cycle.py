"""When an adaptive Metis silo stops to train and asks for an update (methods reference, 6.14; KAT-H2, H3). Without torch."""

from collections.abc import Sequence
from statistics import median

from anchorage.api.method import ValidationCycle

FIRST_CYCLES = 20
"""Cycles whose staleness gives the limit of all later ones."""


def extend_history(history: Sequence[int], staleness: int | None) -> list[int]:
    """Return a silo's history with one more effective staleness; the first `FIRST_CYCLES` stay for ever, negative ones are none."""
    known = staleness is not None and staleness >= 0
    return [*history, *([staleness] if known and staleness is not None else [])][:FIRST_CYCLES]


def staleness_limit(history: Sequence[int]) -> float | None:
    """Return the median of the first cycles' effective staleness; None before there are that many."""
    return median(history[:FIRST_CYCLES]) if len(history) >= FIRST_CYCLES else None


class Cycle:
    """One cycle: judges every epoch from the validation losses and the steps that the others committed meanwhile.

    An epoch fails whose loss did not fall, or by no more than the plateau. The cycle ends when more epochs failed, in a row or not, than there
    are tombstones, or when the effective staleness exceeds the limit, or with its last epoch.

    Parameters
    ----------
    rules : ValidationCycle
        Plateau, tombstones, longest cycle.
    loss : float
        Validation loss of the model as received.
    limit : float or None
        Largest effective staleness; None does not bound it.
    """

    def __init__(self, rules: ValidationCycle, loss: float, limit: float | None) -> None:
        self._plateau, self._tombstones = float(rules.plateau_percent), rules.tombstones
        self._max_epochs, self._limit, self._loss = rules.max_epochs, limit, loss
        self.epochs = self.failures = 0

    def ends(self, loss: float, staleness: int) -> bool:
        """Judge one more epoch.

        Parameters
        ----------
        loss : float
            Validation loss after it.
        staleness : int
            Steps committed since the download, and the silo's own in this cycle.
        """
        self.epochs += 1
        self.failures += self.has_failed(loss)
        self._loss = loss
        stale = self._limit is not None and staleness > self._limit
        return self.failures > self._tombstones or stale or self.epochs >= self._max_epochs

    def has_failed(self, loss: float) -> bool:
        """Return whether an epoch with this loss is a failure; after a loss of 0 every one is."""
        change = self.change(loss)
        return change >= 0 or -change <= self._plateau

    def change(self, loss: float) -> float:
        """Return the change from the epoch before in percent; 0 after a loss of 0."""
        return 100 * (loss - self._loss) / self._loss if self._loss else 0.0

"""The least that a run needs of a silo, derived from the run's description."""

from collections.abc import Iterator
from dataclasses import dataclass

from anchorage.api.method import ResolvedMethod
from anchorage.api.run import RunDescription
from anchorage.engine.aggregation.weigher import BaseWeigher
from anchorage.engine.hooks import WeightingEngineHooks
from anchorage.learning.hooks import expect
from anchorage.methods.preset import auxiliary_arrays

MOST_SILOS = 100
"""Models of other silos that a silo scores in a round at most, where a method asks for it: the description does not say how many silos there are."""
PLAYED_AGAIN = 10
"""Rounds beyond those of the description: one that a server's crash cuts off is played again, on a GPU or with noise to other bytes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a silo does for a run at most."""

    updates: int
    """Updates that are announced."""
    evaluations: int
    """Models that are scored."""
    repetitions: int = 1
    """Trainings for one update."""

    @classmethod
    def of(cls, run: RunDescription, labels: str) -> "Limits":
        """Derive them for a silo whose images have `labels` (``None``, ``All`` or ``Partial``)."""
        updates, repetitions = 0, 1
        evaluations = run.rounds if run.silo_percent and labels != "None" else 0
        for method, _, rounds in stages_of(run):
            weigher = weigher_of(method, run)
            gathers = any(array.large for array in auxiliary_arrays(method, up=True))  # before its first training
            updates += rounds * (2 if gathers else 1)
            evaluations += rounds * MOST_SILOS if weigher.evaluated else 0
            repetitions = max(repetitions, weigher.repetitions)
        return cls(updates + PLAYED_AGAIN, evaluations + PLAYED_AGAIN if evaluations else 0, repetitions)


def stages_of(run: RunDescription) -> Iterator[tuple[ResolvedMethod, str, int]]:
    """Yield each stage's method, layout of an update (JSON) and number of rounds."""
    before = 0
    for stage in run.warm_up:
        yield stage.method, stage.up, stage.last - before
        before = stage.last
    yield run.method, run.up, run.rounds - before


def weigher_of(method: ResolvedMethod, run: RunDescription) -> BaseWeigher:
    """Return what weighs the updates of a method, which says whether silos score models and train repeatedly."""
    return expect(method.weighting, WeightingEngineHooks).weigher(run.model.num_classes)

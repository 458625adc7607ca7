"""The least that a run needs of a silo, derived from the run's description."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from anchorage.api.errors import AnchorageError, transfer
from anchorage.api.method import ResolvedMethod
from anchorage.api.run import RunDescription
from anchorage.engine.aggregation.weigher import BaseWeigher
from anchorage.engine.hooks import WeightingEngineHooks
from anchorage.learning.hooks import expect
from anchorage.methods.preset import auxiliary_arrays
from anchorage.transport.messages import Task
from anchorage.transport.tensors.layout import Layout

MOST_SILOS = 100
"""Models of other silos that a silo scores in a round at most, where a method asks for it: the description does not say how many silos there are."""
MOST_LARGE_BYTES = 1 << 30
"""Auxiliary data that comes with a model in chunks, where the methods have any: the description does not say how much."""
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
    model_bytes: float = math.inf
    """Bytes of a task's model."""
    large_bytes: float = math.inf
    """Bytes of auxiliary data behind it."""

    @property
    def planned(self) -> int:
        """Number of trained models that leave where no round is played again."""
        return (self.updates - PLAYED_AGAIN) * self.repetitions

    @classmethod
    def of(cls, run: RunDescription, labels: str) -> "Limits":
        """Derive them for a silo whose images have `labels` (``None``, ``All`` or ``Partial``)."""
        updates, repetitions, large_bytes = 0, 1, 0
        evaluations = run.rounds if run.silo_percent and labels != "None" else 0
        for method, _, rounds in stages_of(run):
            weigher = weigher_of(method, run)
            gathers = any(array.large for array in auxiliary_arrays(method, up=True))  # before its first training
            updates += rounds * (2 if gathers else 1)
            evaluations += rounds * MOST_SILOS if weigher.evaluated else 0
            repetitions = max(repetitions, weigher.repetitions)
            large_bytes = MOST_LARGE_BYTES if auxiliary_arrays(method, up=False) else large_bytes
        layouts = (run.down, run.up, *(text for stage in run.warm_up for text in (stage.down, stage.up)))
        model_bytes = max(Layout.from_json(text).nbytes for text in layouts)
        evaluations += PLAYED_AGAIN if evaluations else 0
        return cls(updates + PLAYED_AGAIN, evaluations, repetitions, model_bytes, large_bytes)

    def check_size(self, task: Task) -> None:
        """Check what a task would have the silo receive, before there is room made for it.

        Raises
        ------
        AnchorageError
            Its model, or what comes behind it, is larger than the run's description needs.
        """
        large = task.behind.nbytes
        if task.model.nbytes - large > self.model_bytes or large > self.large_bytes:
            found = f"task {task.id} is to receive {task.model.nbytes} bytes, {large} of them auxiliary data"
            most = f"the run's description needs {self.model_bytes:.0f} and {self.large_bytes:.0f} at most"
            raise AnchorageError(transfer.MALFORMED_MESSAGE, f"{found}; {most}")


def stages_of(run: RunDescription) -> Iterator[tuple[ResolvedMethod, str, int]]:
    """Yield each stage's method, layout of an update (JSON) and number of rounds."""
    before = 0
    for stage in run.warm_up:
        yield stage.method, stage.up, stage.last - before
        before = stage.last
    yield run.method, run.up, run.rounds - before


def weigher_of(method: ResolvedMethod, run: RunDescription) -> BaseWeigher:
    """Return what weighs the updates of a method, which says whether silos score models and train repeatedly."""
    return expect(method.weighting, WeightingEngineHooks).weigher(run.model.task)

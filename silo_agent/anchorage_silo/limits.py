"""The least that a run needs of a silo, derived from the run's description."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from anchorage.api.errors import AnchorageError, transfer
from anchorage.api.method import ResolvedMethod
from anchorage.api.piece import expect
from anchorage.api.run import RunDescription
from anchorage.engine.aggregation.weigher import BaseWeigher
from anchorage.engine.hooks import WeightingEngineHooks
from anchorage.methods.preset import auxiliary_arrays
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.layout import HELPER, Layout

MOST_SILOS = 100
"""Models of other silos that a silo scores in a round at most, where a method asks for it: the description does not say how many silos there are."""
MOST_LARGE_BYTES = 1 << 30
"""Auxiliary data that comes with a model in chunks, where the methods have any: the description does not say how much."""
PLAYED_AGAIN = 10
"""Rounds beyond those of the description: one that a server's crash cuts off is played again, on a GPU or with noise to other bytes."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Lengths in bytes of the models that tasks of one stage carry."""

    last: int
    """Last round of the stage."""
    with_parts: int
    """The global model with parts of other silos behind it, where the method sends any; else the global model."""
    alone: int
    """The global model."""
    update: int
    """A silo's update that others score, behind the frozen tensors."""

    @classmethod
    def of(cls, down: str, up: str, last: int) -> "ModelSizes":
        """Derive them from a stage's layouts (JSON)."""
        layout = Layout.from_json(down)
        alone = sum(tensor.nbytes for tensor in layout.tensors if not tensor.name.startswith(HELPER))
        return cls(last, layout.nbytes, alone, layout.front + Layout.from_json(up).nbytes)

    def of_task(self, task: Task) -> set[int]:
        """Return those that the model of a task may have."""
        if task.kind is TaskKind.TRAIN:
            return {self.with_parts, self.alone}
        return {self.alone if task.held_out else self.update}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a silo does for a run at most."""

    updates: int
    """Updates that are announced."""
    evaluations: int
    """Models that are scored."""
    repetitions: int = 1
    """Trainings for one update."""
    sizes: tuple[ModelSizes, ...] = ()
    """Lengths of the models of each stage, the last of which has all further rounds; empty: any."""
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
        layouts = [*((stage.down, stage.up) for stage in run.warm_up), (run.down, run.up)]
        sizes = tuple(ModelSizes.of(*pair, last) for pair, last in zip(layouts, run.ends, strict=True))
        evaluations += PLAYED_AGAIN if evaluations else 0
        return cls(updates + PLAYED_AGAIN, evaluations, repetitions, sizes, large_bytes)

    def check_size(self, task: Task) -> None:
        """Check what a task would have the silo receive, before there is room made for it.

        Raises
        ------
        AnchorageError
            Its model has a length that no model of the run has, or what comes behind it is larger than the run's description needs.
        """
        large = task.behind.nbytes
        model_bytes, allowed = task.model.nbytes - large, self._sizes_of(task)
        if large > self.large_bytes or (allowed and model_bytes not in allowed):
            request = f"task {task.id} is to receive {task.model.nbytes} bytes, {large} of them auxiliary data"
            most = f"the run's description has {' or '.join(map(str, allowed)) or 'any number of'} bytes for its model"
            most += f" and {self.large_bytes:.0f} at most for auxiliary data"
            raise AnchorageError(transfer.MALFORMED_MESSAGE, f"{request}; {most}")

    def _sizes_of(self, task: Task) -> list[int]:
        """Return the lengths in bytes that a task's model may have, without what comes behind it, ascending; empty: any."""
        if task.kind.step:
            return [0]
        stages = [sizes for sizes in self.sizes if task.round <= sizes.last] or self.sizes[-1:]
        return sorted(stages[0].of_task(task)) if stages else []


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

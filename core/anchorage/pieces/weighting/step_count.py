"""Weights by local steps (Orchestra; methods reference, 6.13)."""

from collections.abc import Sequence

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.weigher import CountWeigher
from anchorage.pieces.slots import Weighting


@piece("stepCount")
class StepCount(Weighting):
    """Number of steps that the silo took (Orchestra)."""

    def needs(self) -> Sequence[Need]:
        """Need silos that tell their steps."""
        message = "found stepCount, but silos tell their steps with selfSupervised clusters only; set weighting: {sampleCount: {}}"
        return (Need(Fact.STEP_COUNTS, message),)

    def weigher(self, task: Task) -> CountWeigher:
        """Return the weigher."""
        return CountWeigher("steps")

"""Weights by numbers of images (FedAvg; methods reference, 6.1)."""

from anchorage.api.fact import Fact
from anchorage.api.piece import piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.weigher import CountWeigher
from anchorage.pieces.slots import Weighting


@piece("sampleCount")
class SampleCount(Weighting):
    """Number of images that the silo trained on (FedAvg)."""

    def facts(self) -> frozenset[str]:
        """Say that weights are numbers of images."""
        return frozenset({Fact.PLAIN_WEIGHTS})

    def weigher(self, task: Task) -> CountWeigher:
        """Return the weigher."""
        return CountWeigher("train")

"""Every update counts alike."""

from anchorage.api.fact import Fact
from anchorage.api.piece import piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.weigher import Announcements, BaseWeigher, Evaluations
from anchorage.pieces.slots import Weighting


@piece("uniform")
class Uniform(Weighting):
    """The same weight for every update."""

    def facts(self) -> frozenset[str]:
        """Say that weights are uniform."""
        return frozenset({Fact.UNIFORM_WEIGHTS, Fact.PLAIN_WEIGHTS})

    def weigher(self, task: Task) -> "UniformWeigher":
        """Return the weigher."""
        return UniformWeigher()


class UniformWeigher(BaseWeigher):
    """Every update counts the same."""

    def most(self, images: int) -> float:
        """Return the weight of each."""
        return 1.0

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        return dict.fromkeys(active, 1.0)

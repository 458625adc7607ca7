"""What aggregations share that withstand silos which send anything (Byzantine silos)."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from anchorage.api.errors.documents import TOO_FEW_SILOS
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import Need
from anchorage.api.plan import Plan
from anchorage.pieces.slots import Aggregation


class RobustAggregation(Aggregation):
    """An aggregation that a few updates cannot move wherever they like."""

    @property
    @abstractmethod
    def least(self) -> int:
        """Fewest updates of which it can do without one that is wrong."""

    def needs(self) -> Sequence[Need]:
        """Need updates that count alike: by a weight of its own choice one silo could be the majority."""
        detail = f"found another one, but the aggregation {self.name} counts every update alike"
        return (Need(Fact.UNIFORM_WEIGHTS, f"{detail}; set uniform", path=("spec", "method", "weighting")),)

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need rounds of enough silos, where they are known."""
        sizes = [size for size in (len(plan.silos), plan.spec.protocol.silos_per_round) if size]
        if min(sizes, default=self.least) < self.least:
            message = (
                f"found {min(sizes)} silos in a round, but with fewer than {self.least} updates {self.name} withstands nobody; "
                "add silos, or choose another"
            )
            yield Mistake(TOO_FEW_SILOS, self.path, message)

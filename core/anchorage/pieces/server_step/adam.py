"""FedAdam (methods reference, 6.2)."""

from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.piece import piece
from anchorage.pieces.server_step.adaptive import AdaptiveStep, Floats


@piece("adam")
class Adam(AdaptiveStep):
    """FedAdam, without bias correction (Reddi et al. 2021)."""

    second_momentum: Fraction = Field(
        "0.99", description="Decay beta 2 of the second moment. A larger value averages over more rounds."
    )

    def second_moment(self, before: Floats, square: Floats) -> Floats:
        """Return ``beta2 v + (1 - beta2) delta^2``."""
        decay = float(self.second_momentum)
        return decay * before + (1 - decay) * square

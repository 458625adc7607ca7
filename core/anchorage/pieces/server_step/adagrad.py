"""FedAdagrad (methods reference, 6.2)."""

from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.piece import piece
from anchorage.pieces.server_step.adaptive import AdaptiveStep, Floats


@piece("adagrad")
class Adagrad(AdaptiveStep):
    """FedAdagrad (Reddi et al. 2021).

    The step is divided by the root of the sum of squared updates.
    """

    momentum: Fraction = Field("0", description="Decay beta 1 of the first moment. 0: none.")

    def second_moment(self, before: Floats, square: Floats) -> Floats:
        """Return ``v + delta^2``."""
        return before + square

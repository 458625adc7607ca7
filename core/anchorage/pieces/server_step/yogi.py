"""FedYogi (methods reference, 6.2)."""

import numpy as np
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.piece import piece
from anchorage.pieces.server_step.adaptive import AdaptiveStep, Floats


@piece("yogi")
class Yogi(AdaptiveStep):
    """FedYogi, whose second moment grows slowly (Reddi et al. 2021)."""

    second_momentum: Fraction = Field(
        "0.99", description="Decay beta 2 of the second moment. A larger value changes it less in a round."
    )

    def second_moment(self, before: Floats, square: Floats) -> Floats:
        """Return ``v - (1 - beta2) delta^2 sign(v - delta^2)``."""
        decay = float(self.second_momentum)
        moment: Floats = before - (1 - decay) * square * np.sign(before - square)
        return moment

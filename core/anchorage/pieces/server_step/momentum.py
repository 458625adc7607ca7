"""FedAvgM and SemiFL's step: the server keeps momentum of the rounds' steps (methods reference, 6.2, 6.7)."""

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero, Fraction
from anchorage.api.piece import piece
from anchorage.engine.aggregation.server_step import Moments, Stepper
from anchorage.pieces.server_step.whole_rounds import WholeRoundStep


@piece("momentum")
class Momentum(WholeRoundStep):
    """FedAvgM: momentum of the mean updates (Hsu et al. 2019)."""

    learning_rate: AboveZero = Field(
        "1",
        description="Learning rate of the server. 1 with momentum 0 takes the mean update as it is; less, such as 0.1, goes a part of the "
        "way, for silos that learn from uncertain pseudo-labels.",
    )
    momentum: Fraction = Field("0.9", description="Momentum beta. 0: none.")

    def step(self) -> Stepper:
        """Return a stepper without moments yet."""
        rate, beta = float(self.learning_rate), float(self.momentum)
        return Stepper(lambda delta, moments: momentum_step(delta, moments, rate, beta))


def momentum_step(delta: NDArray[np.float64], moments: Moments, rate: float, momentum: float) -> NDArray[np.float64]:
    """Return FedAvgM's step of one tensor: ``m = beta m - delta``, step ``-eta m`` (KAT-P1); with eta 1 and beta 0.5 SemiFL's (KAT-T1)."""
    moments["m"] = momentum * moments.get("m", 0.0) - delta
    return -rate * moments["m"]

"""FedOpt: what FedAdagrad, FedAdam and FedYogi share (methods reference, 6.2)."""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero, Fraction, PositiveDecimal
from anchorage.engine.aggregation.server_step import Moments, Stepper
from anchorage.pieces.server_step.whole_rounds import WholeRoundStep

Floats = NDArray[np.float64]


class AdaptiveStep(WholeRoundStep):
    """A server optimiser with a second moment (Reddi et al. 2021, Algorithm 2)."""

    learning_rate: AboveZero = Field("0.1", description="Learning rate of the server.")
    momentum: Fraction = Field("0.9", description="Decay beta 1 of the first moment. 0: none.")
    tau: AboveZero = Field(
        "0.001",
        description="Adaptivity tau, which is added to the root of the second moment. A larger value makes steps of parameters more alike.",
    )
    initial_second_moment: PositiveDecimal = Field(
        "0", description="Second moment v of every parameter before round 1."
    )

    @abstractmethod
    def second_moment(self, before: Floats, square: Floats) -> Floats:
        """Return the second moment of a tensor after a round, of the one before and the squared update."""

    def step(self) -> Stepper:
        """Return a stepper without moments yet."""
        return Stepper(self.adaptive_step)

    def adaptive_step(self, delta: Floats, moments: Moments) -> Floats:
        """Return the step of one tensor: ``m = beta1 m + (1 - beta1) delta``, step ``eta m / (sqrt(v) + tau)``."""
        momentum, zeros = float(self.momentum), np.zeros_like(delta)
        first = np.full_like(delta, float(self.initial_second_moment))
        moments["m"] = momentum * moments.get("m", zeros) + (1 - momentum) * delta
        moments["v"] = self.second_moment(moments.get("v", first), delta**2)
        step: Floats = float(self.learning_rate) * moments["m"] / (np.sqrt(moments["v"]) + float(self.tau))
        return step

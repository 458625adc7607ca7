"""FedAsync: the server mixes every update into its model as it arrives (methods reference, 6.14)."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from anchorage.api.base import AboveZero, Share
from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.engine.aggregation.mixing import Mixing
from anchorage.pieces.server_step.whole_rounds import MODE
from anchorage.pieces.slots import ServerStep


class MixStep(ServerStep):
    """``x_t = (1 - alpha_t) x_{t-1} + alpha_t x_new`` with ``alpha_t = alpha s(staleness)`` (Xie et al. 2019, Algorithm 1; KAT-G1).

    Staleness counts the models that the server made since the silo's download: 0 when nobody committed in between.
    """

    alpha: Share = Field("0.6", description="Weight with which a fresh update is mixed into the global model.")

    @abstractmethod
    def discount(self, staleness: int) -> float:
        """Return s(staleness): 1 for a fresh update, less the older it is."""

    def mixing(self) -> Mixing:
        """Return how updates are mixed in."""
        return Mixing(float(self.alpha), self.discount)

    def needs(self) -> Sequence[Need]:
        """Need updates that arrive one by one, and no other weights."""
        detail = f"found Synchronous, but the server step {self.name} takes each update as it comes"
        message = f"{detail}; set Asynchronous, or serverStep: {{replace: {{}}}}"
        weights = f"found another one, but the server step {self.name} weighs updates by their age alone; set uniform"
        return (
            Need(Fact.ARRIVALS, message, failure=PROTOCOL_REFUSED, path=MODE),
            Need(Fact.UNIFORM_WEIGHTS, weights, path=("spec", "method", "weighting")),
        )


@piece("mix")
class Mix(MixStep):
    """FedAsync: every update is mixed into the global model with the same weight."""

    def discount(self, staleness: int) -> float:
        """Return 1."""
        return 1.0


@piece("mixPolynomial")
class MixPolynomial(MixStep):
    """FedAsync whose weight falls with a power of an update's staleness."""

    exponent: AboveZero = Field(
        "0.5", description="Exponent a of the discount (staleness + 1)^-a. A larger value discounts old updates more."
    )

    def discount(self, staleness: int) -> float:
        """Return ``(staleness + 1)^-a``."""
        return float((staleness + 1) ** -float(self.exponent))


@piece("mixHinge")
class MixHinge(MixStep):
    """FedAsync whose weight falls once an update's staleness exceeds a limit."""

    slope: AboveZero = Field(
        "0.5",
        description="Slope a of the discount 1 / (a (staleness - b) + 1). A larger value discounts old updates more.",
    )
    grace: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        4,
        description="Staleness b up to which an update is not discounted, in models that the server made since the silo's download.",
    )

    def discount(self, staleness: int) -> float:
        """Return 1 up to the grace b, then ``1 / (a (staleness - b) + 1)``."""
        return 1.0 if staleness <= self.grace else 1 / (float(self.slope) * (staleness - self.grace) + 1)

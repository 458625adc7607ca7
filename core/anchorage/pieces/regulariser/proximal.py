"""FedProx (methods reference, 6.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from anchorage.api.base import PositiveDecimal
from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.slots import Regulariser

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.silo_round import SiloRound


@piece("proximal")
class Proximal(Regulariser):
    """FedProx: squared distance to the received model, times mu / 2 (Li et al. 2020)."""

    resumes: ClassVar[bool] = True

    mu: PositiveDecimal = Field(
        "0.01",
        description="Factor mu of half the squared distance to the received model. Raise it where silos differ strongly, to keep local "
        "training nearer to that model.",
    )

    def needs(self) -> Sequence[Need]:
        """Need gradients that may have a further term."""
        detail = "found proximal, but control variates are of the loss alone"
        parts = "found proximal, but weights in two parts are held together by terms of their own"
        return (
            Need(Fact.CONTROL_VARIATES, f"{detail}; set regulariser: {{none: {{}}}}", refused=True),
            Need(Fact.WEIGHTS_IN_PARTS, f"{parts}; set regulariser: {{none: {{}}}}", refused=True),
        )

    def begin(self, silo_round: SiloRound) -> Pull:
        """Pull towards the model as received."""
        return Pull(silo_round, float(self.mu))


class Pull(RoundPart):
    """Adds the distance to the received model to every step's loss."""

    resumes = True

    def __init__(self, silo_round: SiloRound, mu: float) -> None:
        self._network, self._mu = silo_round.network, mu

    def losses(self, losses: Iterator[Tensor]) -> Iterator[Tensor]:
        """Return each step's ``loss + mu/2 ||theta - theta_t||^2`` over the trained parameters."""
        from anchorage.algorithms.losses import proximal_penalty

        trained = [p for _, p in self._network.silo_parameters()]
        received = [p.detach().clone() for p in trained]
        return (loss + proximal_penalty(trained, received, self._mu) for loss in losses)

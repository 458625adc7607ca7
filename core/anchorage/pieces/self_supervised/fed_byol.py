"""BYOL at every silo: each view predicts what a slowly following network makes of the other (methods reference, N8.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.piece import piece
from anchorage.pieces.self_supervised.byol import TARGET
from anchorage.pieces.self_supervised.simsiam import SimSiam, simsiam_loss, spread

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anchorage.algorithms.moving_average import MovingAverage
    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work


@piece("fedByol")
class FedByol(SimSiam):
    """BYOL at every silo (FedBYOL).

    Projector and predictor travel with the encoder; the target network, which follows encoder and projector, stays at the silo.
    """

    needs_vectors: ClassVar[bool] = True

    decay: Fraction = Field(
        "0.99",
        description="Decay of the target network's moving average: the share of itself that it keeps per step.",
    )

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of all images; the target goes on from round to round."""
        from torch import nn

        from anchorage.algorithms.moving_average import MovingAverage
        from anchorage.learning.silo_round import Work

        network, batching, spreads = silo_round.network, silo_round.batching(smallest=2), list[float]()
        first = silo_round.copy_received()
        target = MovingAverage(nn.Sequential(first.encoder, projecting(first)).train(), TARGET, silo_round.kept)
        online, decay = nn.Sequential(network.encoder, projecting(network)), float(self.decay)
        return Work(
            byol_losses(silo_round, batching, target, spreads),
            batching.steps(len(silo_round.images.train)),
            silo_round.counts(),
            kept=target.kept,
            after_step=lambda: target.follow(online, decay),
            metrics=lambda: {"projection_spread": spreads[-1]} if spreads else {},
        )


def projecting(network: Network) -> nn.Module:
    """Return the projector, without the predictor behind it."""
    from anchorage.algorithms.projectors import Siamese

    head = network.head("projector")
    assert isinstance(head, Siamese), "built for this method"
    return head.project


def byol_distance(first_guess: Tensor, second_guess: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the mean of both squared distances of unit vectors, each view's prediction and the other's target [n, d]; 0 to 8 (equation N38)."""
    return 4 + 4 * simsiam_loss(first_guess, second_guess, first, second)


def byol_losses(
    silo_round: SiloRound, batching: Batching, target: MovingAverage, spreads: list[float]
) -> Iterator[Tensor]:
    """Yield each step's loss, and put the spread of the last projections into `spreads`."""
    import torch

    network, images = silo_round.network, silo_round.images
    project = network.head("projector")
    augmentation = silo_round.draws.torch("augmentation")
    projected = None
    for positions in batching.positions(len(images.train), silo_round.draws.numpy("batches")):
        views = images.views.barlow(images.views.to_device(images.train[positions]), augmentation)
        (projected, guess), (_, other) = (project(network.embed(view)) for view in views)
        with torch.no_grad():
            first, second = (target.network(view) for view in views)
        yield byol_distance(guess, other, first, second)
    if projected is not None:
        spreads.append(spread(projected.detach()))

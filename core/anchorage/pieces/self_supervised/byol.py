"""FedCon: two weak views of an image look alike to the encoder and to its moving average (methods reference, 6.7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.piece import piece
from anchorage.pieces.self_supervised.barlow import without_classifier
from anchorage.pieces.self_supervised.images_alone import ImagesAlone
from anchorage.transport.tensors.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anchorage.api.method import ResolvedMethod
    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work

TARGET = "target/"
"""Prefix of the target encoder in the silo's kept state."""


@piece("byol")
class Byol(ImagesAlone):
    """FedCon's local loss: two views of an image agree, one of them seen by a moving average of the encoder (Long et al. 2021).

    Its projector and its target encoder stay at the silo.
    """

    needs_vectors: ClassVar[bool] = True

    decay: Fraction = Field(
        "0.999",
        description="Decay of the target encoder's moving average: the share of itself that it keeps per step.",
    )

    def add_heads(self, network: Network) -> None:
        """Add the projector, which stays at the silo."""
        from torch import nn

        width = network.width
        hidden = 3 * width  # as in FedCon's public code
        layers = nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, width)
        network.add_head("local", nn.Sequential(*layers))

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave out the classifier, which no silo trains."""
        return without_classifier(layout)

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of all images; projector and target encoder stay at the silo.

        The target goes by each batch's own statistics, as in the published code: the encoder's running ones belong to other weights.
        """
        from anchorage.algorithms.moving_average import MovingAverage
        from anchorage.learning.silo_round import Work

        batching, decay = silo_round.batching(smallest=2), float(self.decay)
        target = MovingAverage(silo_round.copy_received().encoder.train(), TARGET, silo_round.kept)
        return Work(
            _losses(silo_round, batching, target.network),
            batching.steps(len(silo_round.images.train)),
            silo_round.counts(),
            kept=target.kept,
            after_step=lambda: target.follow(silo_round.network.encoder, decay),
        )


def byol_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the mean of minus the cosine of rows [n, d]: -1 where they point the same way, 0 where they are orthogonal (KAT-T2)."""
    from torch.nn import functional

    return -functional.cosine_similarity(prediction, target).mean()


def _losses(silo_round: SiloRound, batching: Batching, target: nn.Module) -> Iterator[Tensor]:
    network, images, views = silo_round.network, silo_round.images.train, silo_round.images.views
    project = network.head("local")
    augmentation = silo_round.draws.torch("augmentation")
    for positions in batching.positions(len(images), silo_round.draws.numpy("batches")):
        indices = views.to_device(images[positions])
        one, other = (views.weak(indices, augmentation) for _ in range(2))
        yield (
            byol_loss(project(network.embed(one)), target(other).detach())
            + byol_loss(project(network.embed(other)), target(one).detach())
        ) / 2

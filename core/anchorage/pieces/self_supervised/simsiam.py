"""SimSiam: each view of an image predicts the other's projection (methods reference, N8.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.self_supervised.barlow import without_classifier
from anchorage.pieces.self_supervised.byol import byol_loss
from anchorage.pieces.self_supervised.images_alone import ImagesAlone
from anchorage.transport.tensors.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.api.method import ResolvedMethod
    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work


@piece("simSiam")
class SimSiam(ImagesAlone):
    """SimSiam at every silo (FedSimSiam).

    Projector and predictor travel with the encoder. It needs no negative pairs, no second encoder and no memory at the silo.
    """

    def add_heads(self, network: Network) -> None:
        """Add projector and predictor."""
        from anchorage.algorithms.projectors import Siamese

        network.add_head("projector", Siamese(network.width))

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave out the classifier, which no silo trains."""
        return without_classifier(layout)

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of all images, and how widely their projections are spread."""
        from anchorage.learning.silo_round import Work

        batching, spreads = silo_round.batching(smallest=2), list[float]()
        steps = batching.steps(len(silo_round.images.train))
        return Work(
            self._losses(silo_round, batching, spreads),
            steps,
            silo_round.counts(),
            metrics=lambda: {"projection_spread": spreads[-1]} if spreads else {},
        )

    def _losses(self, silo_round: SiloRound, batching: Batching, spreads: list[float]) -> Iterator[Tensor]:
        network, images = silo_round.network, silo_round.images
        project = network.head("projector")
        augmentation = silo_round.draws.torch("augmentation")
        projected = None
        for positions in batching.positions(len(images.train), silo_round.draws.numpy("batches")):
            views = images.views.barlow(images.views.to_device(images.train[positions]), augmentation)
            (first, guess), (second, other) = (project(network.embed(view)) for view in views)
            projected = first.detach()
            yield simsiam_loss(guess, other, first, second)
        if projected is not None:
            spreads.append(spread(projected))


def simsiam_loss(first_guess: Tensor, second_guess: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the mean of minus the cosines of each view's prediction and the other's projection, [n, d] each; -1 to 1 (equation N39)."""
    return (byol_loss(first_guess, second.detach()) + byol_loss(second_guess, first.detach())) / 2


def spread(projected: Tensor) -> float:
    """Return the mean deviation of unit-length projections [n, d], times the root of d: about 1 where they fill the sphere, 0 where all are one."""
    from torch.nn import functional

    unit = functional.normalize(projected.double(), dim=1)
    return float(unit.std(0).mean() * unit.shape[1] ** 0.5)

"""FedBarlow, and FedCLR's classifier beside it: two views of an image agree in every feature, and no two features say the same.

Methods reference, 6.13.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from anchorage.api.base import AboveZero, PositiveDecimal
from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.engine.aggregation.apart import average_apart
from anchorage.pieces.self_supervised.images_alone import ImagesAlone
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.api.method import ResolvedMethod
    from anchorage.learning.local_training import Batching, Loss
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.transport.tensors.chunks import ChunkSource
    from anchorage.transport.tensors.model import ModelBytes

WIDENING = 4
"""Width of the projector by that of the encoder: 512 to 2048 (methods reference, 5.1, KAT-M1)."""


@piece("barlow")
class Barlow(ImagesAlone):
    """Barlow Twins at every silo (FedBarlow).

    With labels a classifier beside it (FedCLR).
    """

    scale: AboveZero = Field("0.01", description="Factor of the Barlow Twins loss.")
    off_diagonal: PositiveDecimal = Field(
        "0.0051",
        description="Factor of the redundancy-reduction term, the squared correlations of different features.",
    )
    online_classifier: Literal["Enabled", "Disabled"] = Field(
        "Disabled",
        description="Whether silos with labels train a linear classifier on the unchanged features (FedCLR).",
    )
    online_rate: AboveZero = Field("0.1", description="Learning rate of the online classifier.")

    @property
    def leaves_classifier(self) -> bool:
        """Whether no silo trains the classifier."""
        return self.online_classifier == "Disabled"

    @property
    def needs_vectors(self) -> bool:  # type: ignore[override]
        """Whether a classifier of the vectors of whole images is trained."""
        return not self.leaves_classifier

    @property
    def decays_classifier(self) -> bool:  # type: ignore[override]
        """Whether weight decay acts on the classifier."""
        return self.leaves_classifier

    @property
    def classifier_rate(self) -> float | None:
        """Learning rate of the online classifier."""
        return None if self.leaves_classifier else float(self.online_rate)

    def needs(self) -> Sequence[Need]:
        """Need rounds for an online classifier, which is a mean whatever the aggregation is."""
        if self.leaves_classifier:
            return super().needs()
        detail = "found Asynchronous, but the online classifier is averaged over a whole round's labelled silos"
        message = f"{detail}; set Synchronous, or onlineClassifier: Disabled"
        rounds = Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode"))
        path = ("spec", "method", "aggregation")
        mean = Need(Fact.SUM_OF_UPDATES, "found another one, but the online classifier is a mean; set mean", path=path)
        return (*super().needs(), rounds, mean)

    def add_heads(self, network: Network) -> None:
        """Add the projector."""
        from anchorage.algorithms.projectors import Projector

        width = network.width
        network.add_head("projector", Projector(width, (WIDENING * width,) * 3))

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave out a classifier that no silo trains."""
        return without_classifier(layout) if self.leaves_classifier else layout

    def refine(
        self,
        mean: ModelBytes,
        updates: Sequence[ChunkSource],
        weights: Sequence[float],
        announcements: Sequence[Announcement],
    ) -> ModelBytes:
        """Average the online classifier by labelled images, over the silos that have some."""
        if self.leaves_classifier:
            return mean
        labelled = [announcement.samples.get("labelled", 0) for announcement in announcements]
        return average_apart(mean, updates, labelled, "classifier.")

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the loss of two views of all images; with an online classifier the loss of its labels beside."""
        from anchorage.learning.silo_round import Work

        batching = silo_round.batching(smallest=2)  # one image has no variance
        labelled_loss = (
            None if self.leaves_classifier or not len(silo_round.images.labelled) else silo_round.labelled()[1]
        )
        losses = self._losses(silo_round, batching, labelled_loss)
        return Work(losses, batching.steps(len(silo_round.images.train)), silo_round.counts())

    def _losses(self, silo_round: SiloRound, batching: Batching, labelled_loss: Loss | None) -> Iterator[Tensor]:
        from anchorage.learning.data.labels import is_known

        network, images = silo_round.network, silo_round.images
        project = network.head("projector")
        scale, off_diagonal = float(self.scale), float(self.off_diagonal)
        augmentation = silo_round.draws.torch("augmentation")
        for positions in batching.positions(len(images.train), silo_round.draws.numpy("batches")):
            chosen = images.train[positions]
            first, second = images.views.barlow(images.views.to_device(chosen), augmentation)
            features = network.embed(first)
            one, other = project(features), project(network.embed(second))
            loss = scale * redundancy_loss(one, other, off_diagonal)
            known = np.flatnonzero(is_known(images.labels[chosen]))
            if labelled_loss is not None and len(known):
                labels = images.views.to_device(images.labels[chosen[known]])
                projected = network.projection(features).detach()[images.views.to_device(known)]
                loss = loss + labelled_loss(network.classifier(projected), labels)
            yield loss


def without_classifier(layout: Layout) -> Layout:
    """Return a layout without the classifier."""
    return layout.select(t.name for t in layout.tensors if not t.name.startswith("classifier."))


def cross_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Return the correlation of every feature of one view with every one of the other, float [d, d].

    The divisor is the number of images at hand: a nominal batch size would keep the diagonal of a short last batch from reaching 1
    (methods reference, section 12, number 10, KAT-R1).

    Parameters
    ----------
    first, second : Tensor of float, shape [n, d]
        Projections of two views, each column with zero mean and unit variance; n is at least 2.
    """
    return first.T @ second / len(first)


def redundancy_loss(first: Tensor, second: Tensor, off_diagonal: float) -> Tensor:
    """Return ``sum (1 - c_ii)^2 + off_diagonal * sum c_ij^2`` of the correlation c of two standardised views [n, d]."""
    correlation = cross_correlation(first, second)
    import torch

    diagonal = torch.diagonal(correlation)
    others = correlation.square().sum() - diagonal.square().sum()
    return (1 - diagonal).square().sum() + off_diagonal * others

"""What mixing of labelled images shares: the loss of a mixture, and the batches that are mixed (methods reference, 6.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.fact import Fact
from anchorage.api.piece import Need
from anchorage.pieces.slots import InputMixing

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anchorage.learning.local_training import Batching, Labelled, Loss
    from anchorage.learning.silo_round import SiloRound, Work


class MixedInputs(InputMixing):
    """Mixes labelled images, under one plain loss."""

    needs_pixels: ClassVar[bool] = True

    share: Fraction = Field("0.05", description="Share lambda of the other image in a mixture.")

    def facts(self) -> frozenset[str]:
        """Say that inputs are mixed."""
        return frozenset({Fact.MIXED_INPUTS})

    def needs(self) -> Sequence[Need]:
        """Need the plain loss on labelled images."""
        detail = f"found {self.name}, but only the plain loss on labelled images is mixed; set this slot or"
        return (
            Need(Fact.PSEUDO_LABELS, f"{detail} pseudoLabels to {{none: {{}}}}", refused=True),
            Need(Fact.SELF_SUPERVISION, f"{detail} selfSupervised to {{none: {{}}}}", refused=True),
        )

    def others(self, silo_round: SiloRound) -> tuple[Others | None, Mapping[str, Any], Mapping[str, int]]:
        """Return the foreign images, what the silo sends, and further counts; none of them here."""
        return None, {}, {}

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of mixed images."""
        from anchorage.learning.silo_round import Work

        batching, (data, loss) = silo_round.batching(), silo_round.labelled()
        count = len(data.indices)
        steps = batching.steps(count)
        samples = {"train": count, "labelled": count, "unlabelled": len(silo_round.images.unlabelled)}
        if not steps:
            return Work(iter(()), 0, samples)
        others, sent, counts = self.others(silo_round)
        losses = self.losses(silo_round, data, loss, batching, others)
        return Work(losses, steps, {**samples, **counts}, auxiliary_data=lambda: sent, resumes=True)

    def losses(
        self, silo_round: SiloRound, data: Labelled, loss: Loss, batching: Batching, others: Others | None
    ) -> Iterator[Tensor]:
        """Yield a step's loss each, of weak views; with a share of 0 the images stay as they are."""
        network, draws = silo_round.network, silo_round.draws
        share, place = float(self.share), draws.place
        drawn = place.track("mixing", draws.numpy("mixing"))
        augmentation = place.track("augmentation", draws.torch("augmentation"))
        batches = batching.rest(len(data.indices), draws)
        for labels, images in data.iterate_views(
            batches, lambda indices: data.views.weak(indices, augmentation), place=place
        ):
            mixed = None if share == 0 else self.mixed(network, loss, images, labels, others, drawn)
            yield loss(network(images), labels) if mixed is None else mixed

    def mixed(
        self,
        network: nn.Module,
        loss: Loss,
        images: Tensor,
        labels: Tensor,
        others: Others | None,
        drawn: np.random.Generator,
    ) -> Tensor | None:
        """Return a batch's loss; None where there is nothing to mix with."""
        raise NotImplementedError


class Others:
    """Foreign images float [g, channels, H, W], normalised, and their soft labels float [g, C]."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        """Draw so many of them, with replacement."""
        import torch

        entries: NDArray[np.int64] = rng.integers(0, len(self.images), count)
        chosen = torch.from_numpy(entries).to(self.images.device)
        return self.images[chosen], self.labels[chosen]


def mixed_loss(
    network: nn.Module, loss: Loss, images: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor, share: float
) -> Tensor:
    """Return the mean loss of ``(1 - share) images + share others`` under both labels (KAT-J3).

    Parameters
    ----------
    network : Module
        In train mode.
    loss : callable
        On logits.
    images, labels : Tensor
        Float [n, ...] and int64 [n].
    others, other_labels : Tensor
        What they are mixed with: one for each or one for all, float [n or 1, ...], and its classes [n] or soft labels [n or 1, C].
    share : float
        Weight lambda of the others.
    """
    logits = network((1 - share) * images + share * others)
    return (1 - share) * loss(logits, labels) + share * loss(logits, for_all(other_labels, logits))


def for_all(labels: Tensor, logits: Tensor) -> Tensor:
    """Return soft labels [1 or n, C] for every row of the logits; classes [n] stay."""
    return labels.expand_as(logits) if labels.ndim == 2 else labels

"""FedAnchor's pair of losses: accepted images, and mixed ones (methods reference, 6.8)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from anchorage.api.base import AboveZero, PositiveDecimal
from anchorage.api.fact import Fact
from anchorage.api.piece import Need
from anchorage.pieces.slots import Mixup

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.learning.draws import Draws
    from anchorage.learning.local_training import Batching, Labelled
    from anchorage.learning.network import Network
    from anchorage.learning.views import Views


class FixMix(Mixup):
    """L_fix + weight L_mix over images whose labels are fixed for a round."""

    alpha: AboveZero = Field(
        "0.75",
        description="Parameter of the distribution Beta(alpha, alpha) of the mixing shares. A larger value mixes more evenly.",
    )
    needs_pixels: ClassVar[bool] = True

    weight: PositiveDecimal = Field("1", description="Factor of the loss on mixed images.")
    redraw: Literal["Round", "Epoch"] = Field("Round", description="How often the images to mix with are drawn.")

    augment: Literal["BeforeMixing", "AfterMixing"] = Field(
        "BeforeMixing", description="Whether images or their mixtures are augmented."
    )

    def losses(
        self, network: Network, fix: Labelled, mix: Labelled, batching: Batching, draws: Draws
    ) -> Iterator[Tensor]:
        """Yield L_fix + b L_mix (FedAnchor, equations 7 to 9); each image is augmented, then mixed.

        Parameters
        ----------
        network : Network
            In train mode.
        fix : Labelled
            Images with accepted labels.
        mix : Labelled
            All images with their labels, accepted or not; as many as `fix` has are drawn with replacement.
        batching : Batching
            Over `fix`.
        draws : Draws
            Generators of the round.
        """
        from torch.nn import functional

        from anchorage.algorithms.losses import mixed_cross_entropy
        from anchorage.learning.views import epoch_batches

        augmentation = draws.torch("augmentation")
        shares, partners, order = draws.numpy("mixup"), draws.numpy("mix-set"), draws.numpy("batches")
        alpha, weight = float(self.alpha), float(self.weight)
        drawn = np.empty(0, np.int64)
        for epoch in range(batching.epochs):
            if epoch == 0 or self.redraw == "Epoch":
                drawn = partners.integers(0, len(mix.indices), len(fix.indices))
            drawn = partners.permutation(drawn)
            batches = list(epoch_batches(order, len(fix.indices), batching.size, batching.smallest))
            starts = accumulate((len(batch) for batch in batches), initial=0)
            others = [drawn[start : start + len(batch)] for start, batch in zip(starts, batches, strict=False)]
            fixed = fix.iterate_views(
                batches,
                lambda i: fix.views.strong(i, augmentation),
                lambda i: self._mixed_views(fix.views, i, augmentation),
            )
            mixed = mix.iterate_views(others, lambda i: self._mixed_views(mix.views, i, augmentation))
            for (labels, strong, strong_labels), (other_labels, other) in zip(fixed, mixed, strict=True):
                share = float(shares.beta(alpha, alpha))
                loss = functional.cross_entropy(network(strong), labels)
                mixture = share * strong_labels + (1 - share) * other
                if self.augment == "AfterMixing":
                    mixture = fix.views.weak_mixture(mixture, augmentation)
                logits = network(mixture)
                yield loss + weight * mixed_cross_entropy(logits, labels, other_labels, share)

    def _mixed_views(self, views: Views, indices: Tensor, augmentation: torch.Generator) -> Tensor:
        """Return images as they are mixed."""
        before = self.augment == "BeforeMixing"
        return views.weak(indices, augmentation) if before else views.fractions(indices)


def server_trains(name: str) -> Need:
    """Return the need of mixup at the server."""
    message = (
        f"found {name}, but the server trains on nothing; set serverTraining: {{anchors: {{}}}}, or mixup elsewhere"
    )
    return Need(Fact.SERVER_TRAINING, message)


def labels_fixed(name: str) -> Need:
    """Return the need of mixup at silos."""
    message = (
        f"found {name}, but silos mix images whose labels are fixed for the round, and these pseudo-labels fix none; "
        "set pseudoLabels: anchorSimilarity or receivedModel, or no mixup at the silos"
    )
    return Need(Fact.FIXED_LABELS, message)

"""FedAnchor's server: cross entropy, then label contrastive epochs of the anchor head (methods reference, 6.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero
from anchorage.api.piece import piece
from anchorage.learning.hooks import ServerLearning
from anchorage.pieces.anchor_head import WithAnchorHead, anchor_outputs
from anchorage.pieces.slots import ServerObjective

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.server_round import ServerRound

_NOTHING = -1e30
"""Stands for log 0: finite, so that gradients of classes without a pair are zeros and not NaN."""


@piece("labelContrastive")
class LabelContrastive(WithAnchorHead, ServerObjective):
    """Cross entropy, then contrastive epochs of the anchor head (FedAnchor)."""

    temperature: AboveZero = Field("0.5", description="Temperature of the contrastive loss.")
    denominator: Literal["AllNegatives", "Bounded"] = Field(
        "AllNegatives",
        description="Pairs in the denominator of the contrastive loss. AllNegatives: all pairs of different classes. Bounded: also those "
        "of the class itself, so that no term is negative.",
    )

    batch_size: Annotated[int, Field(ge=4, le=1_000_000)] = Field(
        50,
        description=(
            "Number of anchors in a contrastive step, drawn evenly from the classes; with fewer anchors, an epoch is one step with "
            "all."
        ),
    )
    pretrain_epochs: Annotated[int, Field(ge=0, le=10_000)] = Field(
        5, description="Number of contrastive epochs before round 1."
    )

    def learning(self) -> ContrastiveLearning:
        """Return what it does in one run."""
        return ContrastiveLearning(self)


class ContrastiveLearning(ServerLearning):
    """Contrastive steps after those of cross entropy."""

    def __init__(self, slot: LabelContrastive) -> None:
        self._slot = slot

    def further_losses(
        self, server_round: ServerRound, epochs: int, *, before_rounds: bool
    ) -> tuple[str, Iterator[Tensor], int] | None:
        """Return the contrastive losses, of as many epochs as cross entropy has; before round 1 of the slot's own number."""
        if before_rounds:
            epochs = self._slot.pretrain_epochs
        steps = epochs * -(-len(server_round.needed.labels) // self._slot.batch_size)
        return ("contrastive_loss", self._losses(server_round, epochs), steps) if epochs else None

    def _losses(self, server_round: ServerRound, epochs: int) -> Iterator[Tensor]:
        slot, data, draws = self._slot, server_round.needed, server_round.draws
        augmentation = draws.torch("augmentation-contrastive")
        rng = draws.numpy("batches-contrastive")
        for _ in range(epochs):
            for positions in balanced_batches(data.labels, rng, slot.batch_size):
                indices, labels = data.batch(positions)
                yield label_contrastive(
                    anchor_outputs(server_round.network, data.views.weak(indices, augmentation)),
                    labels,
                    server_round.model.num_outputs,
                    float(slot.temperature),
                    bounded=slot.denominator == "Bounded",
                )


def class_terms(
    embeddings: Tensor, labels: Tensor, num_classes: int, temperature: float, *, bounded: bool = False
) -> tuple[Tensor, Tensor]:
    """Return each class's term and which classes have one (FedAnchor, equation 1).

    ``l(c) = LSE over pairs of different classes - LSE over pairs of two images of c`` of cosine / temperature; an image's similarity
    to itself is left out. By log-sum-exp, in float32 at least.

    Parameters
    ----------
    embeddings : Tensor of float, shape [n, d]
        Outputs of the anchor head, not normalised.
    labels : Tensor of int64, shape [n]
        Classes.
    num_classes : int
        Classes C.
    temperature : float
        Divides the cosines.
    bounded : bool
        Count the class's own pairs in the denominator too, so that no term is negative.

    Returns
    -------
    terms : Tensor of float, shape [C]
        0 where a class has no term.
    valid : Tensor of bool, shape [C]
        Classes with at least two images, where the batch has another class.
    """
    import torch

    unit = torch.nn.functional.normalize(embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)), eps=1e-12)
    scores = unit @ unit.T / temperature
    same = labels[:, None] == labels
    member = labels[:, None] == torch.arange(num_classes, device=labels.device)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    negative = scores.masked_fill(same, _NOTHING).flatten().logsumexp(0)
    of_row = scores.masked_fill(~same | itself, _NOTHING).logsumexp(1)
    positive = of_row[:, None].masked_fill(~member, _NOTHING).logsumexp(0)
    valid = (member.sum(0) >= 2) & ~same.all()
    denominator = torch.logaddexp(negative, positive) if bounded else negative
    return torch.where(valid, denominator - positive, 0), valid


def label_contrastive(
    embeddings: Tensor, labels: Tensor, num_classes: int, temperature: float, *, bounded: bool = False
) -> Tensor:
    """Return the mean of `class_terms` over the classes that have one; 0 where none has (such a batch must not be stepped on)."""
    terms, valid = class_terms(embeddings, labels, num_classes, temperature, bounded=bounded)
    return terms.sum() / valid.sum().clamp(min=1)


def has_pairs(labels: NDArray[np.int64]) -> bool:
    """Return whether a batch has two images of one class and an image of another."""
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts) > 1 and bool(counts.max() > 1)


def balanced_batches(labels: NDArray[np.int64], rng: np.random.Generator, size: int) -> Iterator[NDArray[np.int64]]:
    """Yield one epoch of indices: every anchor at once up to `size`, else class-balanced batches of about so many.

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        Classes of the anchors.
    rng : Generator
        Draws classes and images.
    size : int
        Anchors of a batch, at least 4.

    Yields
    ------
    ndarray of int64
        P classes with up to Q images each, Q >= 2; batches that hold no pair of each kind are left out.
    """
    if len(labels) <= size:
        if has_pairs(labels):
            yield rng.permutation(len(labels))
        return
    members = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    classes = min(len(members), size // 2)
    images = size // classes
    for _ in range(-(-len(labels) // size)):
        chosen = rng.permutation(len(members))[:classes]
        batch = np.concatenate([rng.permutation(members[c])[:images] for c in chosen])
        if has_pairs(labels[batch]):
            yield batch

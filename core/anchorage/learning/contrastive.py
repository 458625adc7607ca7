"""FedAnchor's label contrastive loss and the batches it needs (METHODS.md 6.8)."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FULL_BATCH = 512
"""Up to so many anchors make one batch."""

_NOTHING = -1e30
"""Stands for log 0: finite, so that gradients of classes without a pair are zeros and not NaN."""


def class_terms(
    embeddings: Tensor, labels: Tensor, num_classes: int, temperature: float, *, bounded: bool = False
) -> tuple[Tensor, Tensor]:
    """Return each class's term and which classes have one (METHODS.md 6.8, eq. (1) of FedAnchor).

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


def balanced_batches(labels: NDArray[np.int64], rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield one epoch of indices: every anchor at once up to `FULL_BATCH`, else class-balanced batches of about so many.

    Parameters
    ----------
    labels : ndarray of int64, shape [n]
        Classes of the anchors.
    rng : Generator
        Draws classes and images.

    Yields
    ------
    ndarray of int64
        P classes with up to Q images each, Q >= 2; batches that hold no pair of each kind are left out.
    """
    if len(labels) <= FULL_BATCH:
        if has_pairs(labels):
            yield rng.permutation(len(labels))
        return
    members = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    classes = min(len(members), FULL_BATCH // 2)
    images = FULL_BATCH // classes
    for _ in range(-(-len(labels) // FULL_BATCH)):
        chosen = rng.permutation(len(members))[:classes]
        batch = np.concatenate([rng.permutation(members[c])[:images] for c in chosen])
        if has_pairs(labels[batch]):
            yield batch

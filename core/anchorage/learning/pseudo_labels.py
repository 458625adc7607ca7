"""Pseudo-labels by similarity to the server's anchors (METHODS.md 6.8, 9.2 numbers 1 and 2)."""

import torch
from torch import Tensor
from torch.nn import functional


def unit_rows(embeddings: Tensor) -> Tensor:
    """Scale every row to length 1; a row of zeros stays.

    Parameters
    ----------
    embeddings : Tensor of float, shape [n, d]
        Any rows.
    """
    return functional.normalize(embeddings, eps=1e-12)


def class_prototypes(anchors: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean unit anchor of every class. It is *not* scaled to length 1: its length is how close the class's anchors are.

    Parameters
    ----------
    anchors : Tensor of float, shape [S, d]
        Embeddings of the anchors, scaled or not.
    labels : Tensor of int64, shape [S]
        Their classes.
    num_classes : int
        Classes C.

    Returns
    -------
    prototypes : Tensor of float, shape [C, d]
        Zeros for a class without anchors.
    present : Tensor of bool, shape [C]
        Classes that have an anchor.
    """
    member = (labels[:, None] == torch.arange(num_classes, device=labels.device)).to(anchors.dtype)
    counts = member.sum(0)
    return member.T @ unit_rows(anchors) / counts.clamp(min=1)[:, None], counts > 0


def anchor_scores(queries: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Return each query's mean cosine to the anchors of each class, exactly as against every single anchor.

    Parameters
    ----------
    queries : Tensor of float, shape [n, d]
        Embeddings; scaling them does not change the scores.
    prototypes : Tensor of float, shape [C, d]
        Of `class_prototypes`.
    present : Tensor of bool, shape [C]
        Classes that have an anchor.

    Returns
    -------
    Tensor of float, shape [n, C]
        Minus infinity for classes without anchors, 0 for a query of zeros.
    """
    lengths = torch.linalg.vector_norm(queries, dim=1, keepdim=True).clamp(min=1e-12)
    return _hide_absent(queries @ prototypes.T / lengths, present)


def ensemble_scores(views: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Return the mean of `anchor_scores` over several views of each image, by one score of the mean unit query.

    Parameters
    ----------
    views : Tensor of float, shape [K, n, d]
        Embeddings of K views of n images.
    prototypes, present : Tensor
        As for `anchor_scores`.
    """
    return _hide_absent(functional.normalize(views, dim=2, eps=1e-12).mean(0) @ prototypes.T, present)


def unreachable(prototypes: Tensor, threshold: float) -> Tensor:
    """Return which classes no image can be accepted as, bool [C]: a score is at most the prototype's length (METHODS.md 9.2, number 4).

    Such a class can still be an image's best one, which is then not accepted, so it is no less a class of `anchor_scores`.

    Parameters
    ----------
    prototypes : Tensor of float, shape [C, d]
        Of `class_prototypes`; a class without anchors has zeros.
    threshold : float
        Acceptance threshold t, at least 0.
    """
    lengths = torch.linalg.vector_norm(prototypes, dim=1)
    lost: Tensor = lengths <= torch.tensor(threshold, dtype=lengths.dtype, device=lengths.device)
    return lost


def _hide_absent(scores: Tensor, present: Tensor) -> Tensor:
    """Put minus infinity where a class has no anchor."""
    return scores.masked_fill(~present, -torch.inf)


def accept(scores: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return the best class of every image and whether its score is above the threshold, strictly and in the scores' dtype.

    Parameters
    ----------
    scores : Tensor of float, shape [n, C]
        Of `anchor_scores`.
    threshold : float
        Acceptance threshold t.

    Returns
    -------
    labels : Tensor of int64, shape [n]
        The first best class.
    accepted : Tensor of bool, shape [n]
        Score > t.
    """
    best, labels = scores.max(1)
    return labels, best > torch.tensor(threshold, dtype=scores.dtype, device=scores.device)

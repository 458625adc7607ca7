"""Losses on logits (methods reference, 6.1, 6.2, 6.8, 6.12). Every mean runs over the whole batch."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

ABSENT_CLASS = 1e-12
"""Smallest share of a class inside the logarithm, so that a class without samples gets -27.6 and not minus infinity (methods reference, 6.12)."""


def log_prior(counts: Tensor) -> Tensor:
    """Return the shift of the logits that makes cross entropy balanced softmax.

    Parameters
    ----------
    counts : Tensor of float, shape [C]
        Labelled images per class, at least one in all.
    """
    return torch.log((counts / counts.sum()).clamp(min=ABSENT_CLASS))


def balanced_softmax(logits: Tensor, labels: Tensor, prior: Tensor) -> Tensor:
    """Return the mean balanced softmax loss (methods reference, 6.12; test with the raw logits).

    Parameters
    ----------
    logits : Tensor of float, shape [n, C]
        Raw outputs.
    labels : Tensor of int64, shape [n]
        True classes.
    prior : Tensor of float, shape [C]
        Result of `log_prior`.
    """
    return functional.cross_entropy(logits + prior, labels)


def mixed_cross_entropy(logits: Tensor, first: Tensor, second: Tensor, share: float) -> Tensor:
    """Return the mean loss of mixed images as one cross entropy with soft labels (methods reference, 6.8, 9.2 number 5).

    Parameters
    ----------
    logits : Tensor of float, shape [n, C]
        Outputs for ``share * image of first + (1 - share) * image of second``.
    first, second : Tensor of int64, shape [n]
        Labels of the images that were mixed.
    share : float
        Weight lambda of `first`.
    """
    classes = torch.arange(logits.shape[1], device=logits.device)
    one, other = (first[:, None] == classes).to(logits.dtype), (second[:, None] == classes).to(logits.dtype)
    return functional.cross_entropy(logits, share * one + (1 - share) * other)


def proximal_penalty(parameters: Iterable[Tensor], received: Iterable[Tensor], mu: float) -> Tensor:
    """Return half the squared distance to the received model, times `mu` (FedProx, methods reference, 6.2).

    Parameters
    ----------
    parameters, received : iterable of Tensor
        Trained parameters and their values when the round began, in the same order; at least one.
    mu : float
        Factor.
    """
    distances = [(now - then).square().sum() for now, then in zip(parameters, received, strict=True)]
    return torch.stack(distances).sum() * (mu / 2)

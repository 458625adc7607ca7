"""Classifiers trained on features that are drawn from class moments: FisherMix and Proto-Hyper (methods reference, N3.4).

Both are linear in the features, so they become weight and bias of the ordinary classifier. Settings are the published ones for ten classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from anchorage.algorithms.moments import JITTER, Moments, discriminant, shrunk, shrunk_root

ENERGY = 0.995
"""Share of the eigenvalues that the subspace holds."""

DRAWS, SPREAD, SHRINKAGE = 4000, 0.9, 0.05
"""Features drawn per class, by how much their spread is narrowed, and the shrinkage of their covariance."""

EPOCHS, RANK = 40, 16
TEMPERATURE, DISTILLED, LDA_SHARE = 4.0, 0.4, 0.7
"""Proto-Hyper: temperature, share of distillation in the loss, and the linear discriminant's share of the teacher."""


def fisher_subspace(
    means: Tensor, prior: Tensor, within: Tensor, shrinkage: float, energy: float, most: int
) -> tuple[Tensor, Tensor]:
    """Return all eigenvalues, falling, [d], and the map V to the subspace that sets classes apart most, [d, k] (equation N21).

    Parameters
    ----------
    means : Tensor of float64, shape [C, d]
        Of every class.
    prior : Tensor of float64, shape [C]
        Class shares, of sum 1.
    within : Tensor of float64, shape [d, d]
        Covariance within classes, which is shrunk; the subspace's coordinates have it as the identity.
    shrinkage : float
        As `shrunk` takes it.
    energy : float
        Share of the eigenvalues' sum that k reaches; it is at least 2, where d is.
    most : int
        Largest k.
    """
    root = shrunk_root(within, shrinkage)
    apart = (means - prior @ means) * prior.sqrt()[:, None]
    white = torch.linalg.solve_triangular(root, apart.T, upper=False)
    values, vectors = torch.linalg.eigh(white @ white.T)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    reached = int((values.cumsum(0) < energy * values.sum()).sum()) + 1
    k = min(max(2, min(reached, most)), len(values))
    return values, torch.linalg.solve_triangular(root.T, vectors[:, :k], upper=True)


def distillation_loss(student: Tensor, teacher: Tensor, labels: Tensor, share: float, temperature: float) -> Tensor:
    """Return ``share * T^2 * KL(teacher / T || student / T) + (1 - share) * cross entropy`` of logits [n, C] (equation N23)."""
    one, other = ((logits / temperature).log_softmax(1) for logits in (student, teacher))
    gap = functional.kl_div(one, other, reduction="batchmean", log_target=True)
    return share * temperature**2 * gap + (1 - share) * functional.cross_entropy(student, labels)


def synthetic_head(
    moments: Moments, log_prior: Tensor, shrinkage: float, draws: torch.Generator, *, distilled: bool
) -> tuple[Tensor, Tensor]:
    """Return weight [C, d] and bias [C], float64, of a classifier trained on drawn features; zeros of a class without images.

    Parameters
    ----------
    moments : Moments
        Pooled ones; two classes at least have images.
    log_prior : Tensor of float64, shape [C]
        Of `Moments.log_prior`; FisherMix draws as many features of every class whatever it is.
    shrinkage : float
        Of the covariance within classes.
    draws : Generator
        What is drawn.
    distilled : bool
        Proto-Hyper: a correction of low rank to a nearest-mean rule, taught by it and the linear discriminant; else FisherMix: a linear map.
    """
    present = moments.labelled > 0
    means, within = moments.means()[present], moments.within()
    _, v = fisher_subspace(means, log_prior[present].exp(), within, shrinkage, ENERGY, len(within))
    projected_means, covariance = means @ v, v.T @ shrunk(within, SHRINKAGE) @ v
    z, labels = _draw_features(projected_means, covariance, draws)
    count, k = projected_means.shape
    if distilled:
        weight, bias = _nearest_mean(projected_means, covariance, log_prior[present])
        lda = discriminant(projected_means, covariance, log_prior[present], 0.0)
        teacher = [LDA_SHARE * a + (1 - LDA_SHARE) * b for a, b in zip(lda, (weight, bias), strict=True)]
        inner = torch.randn(min(RANK, k), k, generator=draws) / k**0.5
        outer, offset = torch.zeros(count, len(inner)), torch.zeros(count)
        base, taught = (weight.float(), bias.float()), [each.float() for each in teacher]

        def loss(chosen: Tensor) -> Tensor:
            student = functional.linear(z[chosen], base[0] + outer @ inner, base[1] + offset)
            wanted = functional.linear(z[chosen], *taught)
            return distillation_loss(student, wanted, labels[chosen], DISTILLED, TEMPERATURE)

        _train([inner, outer, offset], loss, len(z), 1024, (1e-3, 5e-4), draws)
        present_weights, shift = weight + (outer @ inner).detach().double(), bias + offset.detach().double()
    else:
        linear, offset = torch.zeros(count, k), torch.zeros(count)

        def loss(chosen: Tensor) -> Tensor:
            return functional.cross_entropy(functional.linear(z[chosen], linear, offset), labels[chosen])

        _train([linear, offset], loss, len(z), 2048, (8e-4, 3e-4), draws)
        present_weights, shift = linear.detach().double(), offset.detach().double()
    all_weights, biases = moments.means() * 0, torch.zeros(len(present), dtype=torch.float64)
    all_weights[present], biases[present] = present_weights @ v.T, shift
    return all_weights, biases


def _draw_features(means: Tensor, covariance: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return features around class means [C, k], as many of every class, float32 [n, k], and their classes, int64 [n] (equation N22)."""
    count, k = means.shape
    narrow = SPREAD**2 * covariance + JITTER * torch.eye(k, dtype=covariance.dtype)
    noise = torch.randn(count, DRAWS, k, generator=draws, dtype=covariance.dtype) @ torch.linalg.cholesky(narrow).T
    return (means[:, None] + noise).reshape(-1, k).float(), torch.arange(count).repeat_interleave(DRAWS)


def _nearest_mean(means: Tensor, covariance: Tensor, log_prior: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight [C, k] and bias [C] of naive Bayes with one variance for all: the mean of the covariance's diagonal."""
    variance = covariance.diagonal().mean()
    return means / variance, log_prior - means.square().sum(1) / (2 * variance)


def _train(
    parameters: list[Tensor],
    loss: Callable[[Tensor], Tensor],
    count: int,
    size: int,
    rates: tuple[float, float],
    draws: torch.Generator,
) -> None:
    """Train by AdamW of a learning rate and a weight decay, on batches of positions 0..count-1."""
    for parameter in parameters:
        parameter.requires_grad_()
    optimiser = torch.optim.AdamW(parameters, lr=rates[0], weight_decay=rates[1])
    for chosen in _batches(count, size, draws):
        optimiser.zero_grad()
        loss(chosen).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def _batches(count: int, size: int, draws: torch.Generator) -> Iterator[Tensor]:
    for _ in range(EPOCHS):
        yield from torch.split(torch.randperm(count, generator=draws), size)

"""Losses of images that are mixed with others: NaiveMix, LocalMix, Global Mixup, and FedMix's three terms (METHODS.md 6.4)."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd import forward_ad

from anchorage.api.method import InputMixing
from anchorage.learning.draws import Draws
from anchorage.learning.local_training import Batching, Labelled

_ONE_LEVEL = Lock()
"""Torch has one level of forward mode for all threads of a process."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Mean loss of logits [n, C] and classes [n] or rows of soft labels [n, C]."""


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
    return (1 - share) * loss(logits, labels) + share * loss(logits, _for_all(other_labels, logits))


def fedmix_terms(
    network: nn.Module, loss: Loss, images: Tensor, labels: Tensor, mean: Tensor, mean_label: Tensor, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return FedMix's l1, l2 and l3, whose sum approximates mixup with the mean image to first order in `share` (KAT-J1).

    The third, ``share * mean_i <d/dx' sum_j (1 - share) CE_j, mean>``, is a derivative along the mean image: one pass in forward mode instead
    of a gradient's gradient (METHODS.md 9.2, number 8). The statistics of batch normalisation are frozen there: they would move with the
    images, which all move alike, and take the movement out again.

    Parameters
    ----------
    network : Module
        In train mode.
    loss : callable
        On logits.
    images, labels : Tensor
        Float [n, ...] and int64 [n].
    mean, mean_label : Tensor
        One foreign mean: float [1, ...] and float [1, C].
    share : float
        Weight lambda of the mean.
    """
    scaled = (1 - share) * images
    logits = network(scaled)
    own, foreign = loss(logits, labels), loss(logits, _for_all(mean_label, logits))
    with frozen_statistics(network):
        slope = derivative_along(network, loss, scaled, labels, mean.expand_as(scaled))
    return (1 - share) * own, share * foreign, share * (1 - share) * slope


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Have batch normalisation take each batch's statistics as they are at the point of a derivative, and leave its running ones alone.

    Running statistics in their place would not follow the weights of a step, and the derivative, which has no lower bound, would grow.
    """
    layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    for layer in layers:
        layer.forward = partial(_normalised, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _normalised(layer: nn.BatchNorm2d, x: Tensor) -> Tensor:
    values = forward_ad.unpack_dual(x).primal  # type: ignore[no-untyped-call]
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    mean, variance = values.mean((0, 2, 3)), values.var((0, 2, 3), unbiased=False)
    scale = layer.weight * (variance + layer.eps).rsqrt()
    output: Tensor = (x - mean[:, None, None]) * scale[:, None, None] + layer.bias[:, None, None]
    return output


def derivative_along(network: nn.Module, loss: Loss, images: Tensor, labels: Tensor, direction: Tensor) -> Tensor:
    """Return how the loss changes as every image moves along a direction of its shape; the weights' gradients can be taken of it.

    The network passes the direction on to its logits in forward mode; from there on the loss's own gradient does.
    """
    with _ONE_LEVEL, forward_ad.dual_level():
        with warnings.catch_warnings():  # of torch's own first call
            warnings.filterwarnings("ignore", r"`torch\.jit\.script`", FutureWarning)
            moved = forward_ad.make_dual(images, direction)  # type: ignore[no-untyped-call]
        logits, slope = forward_ad.unpack_dual(network(moved))  # type: ignore[no-untyped-call]
    (gradient,) = torch.autograd.grad(loss(logits, labels), logits, create_graph=True)
    total: Tensor = (gradient * slope).sum()
    return total


def _for_all(labels: Tensor, logits: Tensor) -> Tensor:
    return labels.expand_as(logits) if labels.ndim == 2 else labels


@dataclass(frozen=True)
class Pool:
    """Foreign images float [g, channels, H, W], normalised, and their soft labels float [g, C]."""

    images: Tensor
    labels: Tensor


def mixing_losses(
    network: nn.Module,
    data: Labelled,
    loss: Loss,
    batching: Batching,
    slot: InputMixing,
    pool: Pool | None,
    draws: Draws,
) -> Iterator[Tensor]:
    """Yield a step's loss each: weak views, mixed with one entry of the pool per batch (Global: per image), or with each other (Local).

    Without a pool, where the method needs one, and with a share of 0 the images stay as they are.
    """
    share, drawn, augmentation = float(slot.share), draws.numpy("mixing"), draws.torch("augmentation")
    batches = batching.positions(len(data.indices), draws.numpy("batches"))
    for labels, images in data.viewed(batches, lambda indices: data.views.weak(indices, augmentation)):
        if share == 0 or (pool is None and slot.type != "Local"):
            yield loss(network(images), labels)
        elif pool is None:
            order = data.views.to_device(drawn.permutation(len(images)))
            yield mixed_loss(network, loss, images, labels, images[order], labels[order], share)
        else:
            entries = data.views.to_device(_entries(drawn, slot, len(pool.images), len(images)))
            others = pool.images[entries], pool.labels[entries]
            if slot.type == "FedMix":
                first, second, third = fedmix_terms(network, loss, images, labels, *others, share)
                yield first + second + third
            else:
                yield mixed_loss(network, loss, images, labels, *others, share)


def _entries(drawn: np.random.Generator, slot: InputMixing, size: int, images: int) -> NDArray[np.int64]:
    return drawn.integers(0, size, images if slot.type == "Global" else 1)

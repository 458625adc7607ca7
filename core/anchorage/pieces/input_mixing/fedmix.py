"""FedMix: mixup with mean images of other silos, to first order (methods reference, 6.4)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.input_mixing.means import Means
from anchorage.pieces.input_mixing.mixed_inputs import for_all

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anchorage.learning.local_training import Loss


_ONE_LEVEL = Lock()
"""Torch has one level of forward mode for all threads of a process."""


@piece("fedMix")
class FedMix(Means):
    """FedMix: mixing with a mean image, whose loss is approximated to first order (Yoon et al. 2021)."""

    def mixture(
        self, network: nn.Module, loss: Loss, images: Tensor, labels: Tensor, foreign: Tensor, soft: Tensor
    ) -> Tensor:
        """Return FedMix's three terms together."""
        first, second, third = fedmix_terms(network, loss, images, labels, foreign, soft, float(self.share))
        return first + second + third


def fedmix_terms(
    network: nn.Module, loss: Loss, images: Tensor, labels: Tensor, mean: Tensor, mean_label: Tensor, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return FedMix's l1, l2 and l3, whose sum approximates mixup with the mean image to first order in `share` (KAT-J1).

    The third, ``share * mean_i <d/dx' sum_j (1 - share) CE_j, mean>``, is a derivative along the mean image: one pass in forward mode instead
    of a gradient's gradient (methods reference, 9.2, number 8). The statistics of batch normalisation are frozen there: they would move with the
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
    image_loss, foreign = loss(logits, labels), loss(logits, for_all(mean_label, logits))
    with frozen_statistics(network):
        slope = derivative_along(network, loss, scaled, labels, mean.expand_as(scaled))
    return (1 - share) * image_loss, share * foreign, share * (1 - share) * slope


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Have batch normalisation take each batch's statistics as they are at the point of a derivative, and leave its running ones alone.

    Running statistics in their place would not follow the weights of a step, and the derivative, which has no lower bound, would grow.
    """
    from torch import nn

    layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    for layer in layers:
        layer.forward = partial(_normalise, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _normalise(layer: nn.BatchNorm2d, x: Tensor) -> Tensor:
    import torch
    from torch.autograd import forward_ad

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
    import torch
    from torch.autograd import forward_ad

    with _ONE_LEVEL, forward_ad.dual_level():
        with warnings.catch_warnings():  # of torch's own first call
            warnings.filterwarnings("ignore", r"`torch\.jit\.script`", FutureWarning)
            moved = forward_ad.make_dual(images, direction)  # type: ignore[no-untyped-call]
        logits, slope = forward_ad.unpack_dual(network(moved))  # type: ignore[no-untyped-call]
    (gradient,) = torch.autograd.grad(loss(logits, labels), logits, create_graph=True)
    total: Tensor = (gradient * slope).sum()
    return total

"""FedCon's server: cross entropy on two views of its labelled images, which must agree more and more with its moving average (METHODS.md 6.7)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anchorage.learning.draws import Draws
from anchorage.learning.local_training import Batching, Labelled
from anchorage.learning.models import Network
from anchorage.learning.moving_average import FEDCON_DECAY, MovingAverage

RAMP_ROUNDS = 100
"""Rounds until agreement counts in full."""

_AVERAGE = "target/"
"""Prefix of the moving average in what a checkpoint keeps."""


def ramp(round_number: int) -> float:
    """Return how much agreement counts in a round: from 0.0067 to 1 (KAT-T2)."""
    return math.exp(-5 * (1 - min(round_number / RAMP_ROUNDS, 1)) ** 2)


def divergence(views: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Return the mean over images of the Kullback-Leibler divergence of each view from the other one's target, halved.

    Parameters
    ----------
    views : sequence of Tensor of float, shape [n, C]
        Logits of the two views by the network in training.
    targets : sequence of Tensor of float, shape [n, C]
        Their logits by its moving average, without gradients.
    """
    one, other = (view.log_softmax(1) for view in views)
    for_other, for_one = (target.log_softmax(1) for target in targets)
    return (
        functional.kl_div(one, for_one, reduction="batchmean", log_target=True)
        + functional.kl_div(other, for_other, reduction="batchmean", log_target=True)
    ) / 2


def averaged(network: Network, kept: Mapping[str, NDArray[Any]]) -> MovingAverage:
    """Return the moving average that was kept, else one that starts at the network; it goes by each batch's own statistics."""
    return MovingAverage(deepcopy(network).requires_grad_(False).train(), _AVERAGE, kept)


def two_view_losses(
    network: Network, average: MovingAverage, data: Labelled, batching: Batching, draws: Draws
) -> Iterator[Tensor]:
    """Yield the mean cross entropy of two weak views, and their divergence from the average times the round's ramp.

    The average follows after each step. METHODS.md 6.7: the published code compares the network with itself and leaves the average unused.
    """
    augmentation, weight = draws.torch("augmentation"), ramp(draws.round)
    for positions in batching.positions(len(data.indices), draws.numpy("batches")):
        indices, labels = data.batch(positions)
        images = [data.views.weak(indices, augmentation) for _ in range(2)]
        with torch.no_grad():
            targets = [average.network(view) for view in images]
        views = [network(view) for view in images]
        both = sum(functional.cross_entropy(view, labels) for view in views) / 2
        yield both + weight * divergence(views, targets)
        average.follow(network, FEDCON_DECAY)

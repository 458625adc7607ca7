"""FedCon's server: cross entropy on two views of its labelled images, which must agree more and more (METHODS.md 6.7)."""

import math
from collections.abc import Iterator

from torch import Tensor
from torch.nn import functional

from anchorage.learning.draws import Draws
from anchorage.learning.local_training import Batching, Labelled
from anchorage.learning.models import Network

RAMP_ROUNDS = 100
"""Rounds until agreement counts in full."""


def ramp(round_number: int) -> float:
    """Return how much agreement counts in a round: from 0.0067 to 1 (KAT-T2)."""
    return math.exp(-5 * (1 - min(round_number / RAMP_ROUNDS, 1)) ** 2)


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """Return the mean over images of the Kullback-Leibler divergence between two views' probabilities, both ways, halved.

    Either view is a target without a gradient to the other.

    Parameters
    ----------
    one, other : Tensor of float, shape [n, C]
        Logits.
    """
    p, q = one.log_softmax(1), other.log_softmax(1)
    return (
        functional.kl_div(p, q.detach(), reduction="batchmean", log_target=True)
        + functional.kl_div(q, p.detach(), reduction="batchmean", log_target=True)
    ) / 2


def two_view_losses(network: Network, data: Labelled, batching: Batching, draws: Draws) -> Iterator[Tensor]:
    """Yield the mean cross entropy of two weak views, and their divergence times the round's ramp."""
    augmentation, weight = draws.torch("augmentation"), ramp(draws.round)
    for positions in batching.positions(len(data.indices), draws.numpy("batches")):
        indices, labels = data.batch(positions)
        one, other = (network(data.views.weak(indices, augmentation)) for _ in range(2))
        both = (functional.cross_entropy(one, labels) + functional.cross_entropy(other, labels)) / 2
        yield both + weight * divergence(one, other)

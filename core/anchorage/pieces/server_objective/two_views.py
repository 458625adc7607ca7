"""FedCon's server: cross entropy of two views that must agree with a moving average (methods reference, 6.7)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any

from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.learning.hooks import ServerLearning
from anchorage.pieces.slots import ServerObjective

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.algorithms.moving_average import MovingAverage
    from anchorage.learning.local_training import Batching
    from anchorage.learning.server_round import ServerRound

_AVERAGE = "target/"
"""Prefix of the moving average in what a checkpoint keeps."""


@piece("twoViews")
class TwoViews(ServerObjective):
    """Cross entropy of two views, which must agree with a moving average of the model (FedCon)."""

    ramp_rounds: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        100, description="Number of rounds in which the weight of the agreement rises to 1."
    )
    decay: Fraction = Field(
        "0.999", description="Decay of the moving average: the share of itself that it keeps per step."
    )

    def needs(self) -> Sequence[Need]:
        """Need plain anchors."""
        detail = "found twoViews, which is of plain anchors"
        mixed = f"{detail}, with mixup at the server; set objective: {{taskLoss: {{}}}}, or leave that out"
        parts = f"{detail}, with weights in two parts; set objective: {{taskLoss: {{}}}}, or leave that out"
        return (
            Need(Fact.SERVER_MIXUP, mixed, refused=True),
            Need(Fact.WEIGHTS_IN_PARTS, parts, refused=True),
        )

    def learning(self) -> TwoViewLearning:
        """Return what it does in one run."""
        return TwoViewLearning(self)


class TwoViewLearning(ServerLearning):
    """Learns of two views; its state is the moving average, once there is one."""

    def __init__(self, slot: TwoViews) -> None:
        self._slot = slot
        self._average: MovingAverage | None = None

    def losses(self, server_round: ServerRound, batching: Batching) -> Iterator[Tensor]:
        """Yield the mean cross entropy of two weak views, and their divergence from the average times the round's ramp.

        The average follows after each step. Methods reference, 6.7: the published code compares the network with itself and leaves the
        average unused.
        """
        import torch
        from torch.nn import functional

        average = self._average = self._average or restore_average(server_round, {})
        network, data, draws = server_round.network, server_round.needed, server_round.draws
        augmentation = draws.torch("augmentation")
        weight, decay = ramp(draws.round, self._slot.ramp_rounds), float(self._slot.decay)
        for positions in batching.positions(len(data.indices), draws.numpy("batches")):
            indices, labels = data.batch(positions)
            images = [data.views.weak(indices, augmentation) for _ in range(2)]
            with torch.no_grad():
                targets = [average.network(view) for view in images]
            views = [network(view) for view in images]
            both = (functional.cross_entropy(views[0], labels) + functional.cross_entropy(views[1], labels)) / 2
            yield both + weight * divergence(views, targets)
            average.follow(network, decay)

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the moving average."""
        return {} if self._average is None else {name: a.copy() for name, a in self._average.kept().items()}

    def restore(self, server_round: ServerRound, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self._average = restore_average(server_round, state)


def ramp(round_number: int, rounds: int) -> float:
    """Return how much agreement counts in a round: from 0.0067 to 1 after so many rounds (KAT-T2)."""
    return math.exp(-5 * (1 - min(round_number / rounds, 1)) ** 2)


def divergence(views: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Return the mean over images of the Kullback-Leibler divergence of each view from the other one's target, halved.

    Parameters
    ----------
    views : sequence of Tensor of float, shape [n, C]
        Logits of the two views by the network in training.
    targets : sequence of Tensor of float, shape [n, C]
        Their logits by its moving average, without gradients.
    """
    from torch.nn import functional

    one, other = (view.log_softmax(1) for view in views)
    for_other, for_one = (target.log_softmax(1) for target in targets)
    return (
        functional.kl_div(one, for_one, reduction="batchmean", log_target=True)
        + functional.kl_div(other, for_other, reduction="batchmean", log_target=True)
    ) / 2


def restore_average(server_round: ServerRound, previous_state: Mapping[str, NDArray[Any]]) -> MovingAverage:
    """Return the moving average that was kept, else one that starts at the network; it goes by each batch's own statistics."""
    from anchorage.algorithms.moving_average import MovingAverage

    return MovingAverage(deepcopy(server_round.network).requires_grad_(False).train(), _AVERAGE, previous_state)

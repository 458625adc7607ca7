"""imFed-Semi's server: cross entropy of two views with smoothed labels (methods reference, N4, equation N28)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.learning.hooks import ServerLearning
from anchorage.pieces.slots import ServerObjective

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.local_training import Batching
    from anchorage.learning.server_round import ServerRound

SMOOTHING = 0.1
"""Share of each label that is spread over all classes."""


@piece("smoothedViews")
class SmoothedViews(ServerObjective):
    """Cross entropy of two views with smoothed labels (imFed-Semi)."""

    def needs(self) -> Sequence[Need]:
        """Need plain anchors."""
        detail = "found smoothedViews, which is of plain anchors, with {}; set objective: {{taskLoss: {{}}}}, or leave that out"
        refused = ((Fact.SERVER_MIXUP, "mixup at the server"), (Fact.WEIGHTS_IN_PARTS, "weights in two parts"))
        return tuple(Need(fact, detail.format(what), refused=True) for fact, what in refused)

    def learning(self) -> SmoothedLearning:
        """Return what it does in one run."""
        return SmoothedLearning()


class SmoothedLearning(ServerLearning):
    """Learns of two weak views of each batch; keeps nothing."""

    def losses(self, server_round: ServerRound, batching: Batching) -> Iterator[Tensor]:
        """Yield the sum of both views' losses."""
        network, data, draws = server_round.network, server_round.needed, server_round.draws
        augmentation = draws.torch("augmentation")
        for positions in batching.positions(len(data.indices), draws.numpy("batches")):
            indices, labels = data.batch(positions)
            first, second = (network(data.views.weak(indices, augmentation)) for _ in range(2))
            yield smoothed_loss(first, labels, SMOOTHING) + smoothed_loss(second, labels, SMOOTHING)


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the mean of ``(1 - e) * cross entropy - e * mean_c log p_c`` of logits [n, C] and labels [n]."""
    from torch.nn import functional

    return functional.cross_entropy(logits, labels, label_smoothing=smoothing)

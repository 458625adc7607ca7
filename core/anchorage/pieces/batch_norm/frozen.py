"""Batch normalisation by the statistics of the weights that training starts from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import piece
from anchorage.pieces.slots import BatchNorm
from anchorage.transport.tensors.layout import BUFFERS, Layout

if TYPE_CHECKING:
    from anchorage.api.method import ResolvedMethod
    from anchorage.api.plan import Plan
    from anchorage.learning.network import Network


@piece("frozen")
class Frozen(BatchNorm):
    """Normalisation by the running statistics of the initial weights, which stay as they are."""

    def facts(self) -> frozenset[str]:
        """Say that updates travel without running statistics."""
        return frozenset({Fact.PARTIAL_NORMS})

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need weights to start from: statistics of random ones say nothing."""
        if not plan.spec.model.starts_trained and not plan.spec.warm_up:
            message = (
                "found frozen, but the model starts from random weights, of which no statistics are known; "
                "give spec.model.weights, spec.model.initial or spec.warmUp, or set groupNorm"
            )
            yield Mistake(MEANINGLESS_OVERRIDE, self.path, message)

    def weights_drawn(self, network: Network) -> None:
        """Have every copy of the network normalise by its statistics, at silos as at the server."""
        from anchorage.learning.batch_norm import use_statistics

        use_statistics(network.encoder)

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave out what batch normalisation counted."""
        return layout.select(t.name for t in layout.tensors if not t.name.endswith(BUFFERS))

"""The weighted mean (FedAvg; methods reference, 6.1)."""

from collections.abc import Sequence

from anchorage.api.fact import Fact
from anchorage.api.piece import piece
from anchorage.engine.aggregation.mean import weighted_mean
from anchorage.pieces.slots import Aggregation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


@piece("mean")
class Mean(Aggregation):
    """Weighted mean (FedAvg)."""

    def facts(self) -> frozenset[str]:
        """Say that updates enter as a sum, as the asynchronous protocol needs."""
        return frozenset({Fact.SUM_OF_UPDATES})

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return the weighted mean."""
        return weighted_mean(updates, weights, layout)

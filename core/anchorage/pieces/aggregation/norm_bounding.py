"""The mean of updates of bounded norm (Sun et al. 2019, "Can you really backdoor federated learning?", section 4)."""

from collections.abc import Sequence
from math import fsum
from statistics import median
from typing import Annotated

from pydantic import Field

from anchorage.api.piece import Need, piece
from anchorage.engine.aggregation.mean import NonFiniteUpdate, weighted_mean
from anchorage.engine.aggregation.norms import Norms, norms_of
from anchorage.pieces.aggregation.robust import RobustAggregation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


@piece("normBounding")
class NormBounding(RobustAggregation):
    """Weighted mean of updates of bounded norm."""

    factor: Annotated[int, Field(ge=1, le=1000)] = Field(
        1,
        description="Maximum L2 norm of an update, in multiples of the round's median norm; larger ones are scaled down to it.",
    )

    @property
    def least(self) -> int:
        """Three: of two the median is not the norm of either."""
        return 3

    def needs(self) -> Sequence[Need]:
        """Need nothing: weights stay as they are."""
        return ()

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return ``w + sum p_k s_k (w_k - w)`` with the global model w, weights p of sum 1 and ``s_k = min(1, factor * median / norm_k)``.

        The norms are of the network's weights and of what is counted, each with its own median; the smaller scale holds.
        """
        origin = model if model.layout == layout else ModelBytes.from_arrays(layout, model.arrays())
        total, counted = fsum(weights), [index for index, weight in enumerate(weights) if weight > 0]
        try:
            lengths = norms_of([updates[index] for index in counted], layout, origin)
        except NonFiniteUpdate as error:
            raise NonFiniteUpdate(counted[error.index], error.tensor) from error
        scales = scale_factors(lengths, self.factor)
        parts = [weights[index] / total * scale for index, scale in zip(counted, scales, strict=True)]
        rest = max(0.0, 1 - fsum(parts))
        return weighted_mean([*(updates[index] for index in counted), origin], [*parts, rest], layout)


def scale_factors(lengths: Sequence[Norms], factor: int) -> list[float]:
    """Return by what each difference is multiplied, from 0 to 1, so that its norms are at most `factor` times the medians."""
    most = [factor * median(group) for group in zip(*lengths, strict=True)]
    return [
        min([1.0, *(b / norm for b, norm in zip(most, update_norms, strict=True) if norm > b)])
        for update_norms in lengths
    ]

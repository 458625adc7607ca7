"""Multi-Krum (Blanchard et al. 2017, "Machine learning with adversaries", section 4)."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.piece import piece
from anchorage.engine.aggregation.coordinates import check_finite, stack_sources
from anchorage.engine.aggregation.mean import weighted_mean
from anchorage.engine.aggregation.regions import float_regions
from anchorage.pieces.aggregation.robust import RobustAggregation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


@piece("multiKrum")
class MultiKrum(RobustAggregation):
    """Mean of the updates that are nearest to the others (Multi-Krum)."""

    byzantine: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="Number f of silos with wrong updates that is withstood. A round needs 2 f + 3 silos."
    )

    @property
    def least(self) -> int:
        """2 f + 3, the paper's condition."""
        return 2 * self.byzantine + 3

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return the mean of the n - f - 2 updates whose squared distances to their n - f - 2 nearest others sum up to least."""
        check_finite(updates, layout)
        selected_count = max(1, len(updates) - self.byzantine - 2)
        chosen = np.argsort(krum_scores(distances(updates, layout, model), selected_count), kind="stable")[
            :selected_count
        ]
        return weighted_mean([updates[index] for index in sorted(chosen)], [1.0] * selected_count, layout)


def distances(updates: Sequence[ChunkSource], layout: Layout, model: ModelBytes) -> NDArray[np.float64]:
    """Return the squared distances of all pairs of updates, float64, shape [n, n].

    From the inner products of their differences from the model, block by block, in memory that grows with the pairs alone.
    """
    origin = model if model.layout == layout else ModelBytes.from_arrays(layout, model.arrays())
    products = np.zeros((len(updates), len(updates)))
    with np.errstate(over="ignore", invalid="ignore"):
        for index, regions in enumerate(float_regions(layout)):
            for region in regions:
                for values in stack_sources([*updates, origin], region, index):
                    apart = values[:-1] - values[-1]
                    products += apart @ apart.T
        squares = np.diag(products)
        squared_distances: NDArray[np.float64] = squares[:, None] + squares[None, :] - 2 * products
    return np.where(np.isfinite(squared_distances), np.maximum(squared_distances, 0.0), np.inf)


def krum_scores(apart: NDArray[np.float64], nearest: int) -> NDArray[np.float64]:
    """Return each update's sum of the squared distances to its nearest others, float64 [n]; `apart` is of shape [n, n], its diagonal left out."""
    others = np.sort(np.where(np.eye(len(apart), dtype=bool), np.inf, apart), axis=1)
    scores: NDArray[np.float64] = others[:, : min(nearest, len(apart) - 1)].sum(1)
    return scores

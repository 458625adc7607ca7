"""The coordinate-wise median (Yin et al. 2018, "Byzantine-robust distributed learning", Algorithm 1, option I)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anchorage.api.piece import piece
from anchorage.engine.aggregation.coordinates import by_coordinate
from anchorage.pieces.aggregation.robust import RobustAggregation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


@piece("median")
class Median(RobustAggregation):
    """Coordinate-wise median; withstands wrong updates of fewer than half of the silos."""

    @property
    def least(self) -> int:
        """Three: of two the median is the mean."""
        return 3

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return the median of every coordinate; of an even number of updates the mean of the two in the middle."""
        return by_coordinate(updates, layout, middle)


def middle(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of every column, shape [n], of values of shape [updates, n]."""
    ordered, half = np.sort(values, axis=0), len(values) // 2
    median: NDArray[np.float64] = ordered[half] if len(values) % 2 else ordered[half - 1 : half + 1].mean(0)
    return median

"""The coordinate-wise trimmed mean (Yin et al. 2018, "Byzantine-robust distributed learning", Algorithm 1, option II)."""

from collections.abc import Iterator, Sequence
from fractions import Fraction as Exact
from math import ceil

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import piece
from anchorage.api.plan import Plan
from anchorage.engine.aggregation.coordinates import by_coordinate
from anchorage.pieces.aggregation.robust import RobustAggregation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


@piece("trimmedMean")
class TrimmedMean(RobustAggregation):
    """Coordinate-wise mean without the largest and the smallest values (trimmed mean)."""

    share: Fraction = Field(
        "0.2",
        description="Share of the values that is cut at each end, above 0 and below 0.5: the share of silos with wrong updates that is "
        "withstood.",
    )

    @property
    def least(self) -> int:
        """So many that one is left out at each end."""
        return ceil(1 / Exact(self.share)) if Exact(self.share) else 1

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need a share that leaves something out, and something in."""
        yield from super().check(plan)
        if not 0 < Exact(self.share) < Exact(1, 2):
            message = f"found {self.share}, allowed is above 0 and below 0.5: it is left out at both ends"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("share"), message)

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return the mean of every coordinate without its largest and its smallest values."""
        cut = int(Exact(self.share) * len(updates))

        def trim(values: NDArray[np.float64]) -> NDArray[np.float64]:
            mean: NDArray[np.float64] = np.sort(values, axis=0)[cut : len(values) - cut].mean(0)
            return mean

        return by_coordinate(updates, layout, trim)

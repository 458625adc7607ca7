"""Zeno: updates are judged by the server's validation images (Xie, Koyejo and Gupta 2019, "Zeno", ICML, arXiv:1805.10032, definition 3)."""

from collections.abc import Callable, Sequence
from math import isnan
from typing import Annotated

from pydantic import Field

from anchorage.api.base import PositiveDecimal
from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.engine.aggregation.mean import weighted_mean
from anchorage.engine.aggregation.norms import norms_of
from anchorage.pieces.aggregation.robust import RobustAggregation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


@piece("zeno")
class Zeno(RobustAggregation):
    """Mean of the updates whose models score best on the server's validation images (Zeno)."""

    byzantine: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="Number b of worst-scoring updates that are discarded in each round."
    )
    norm_penalty: PositiveDecimal = Field(
        "0.001",
        description="Penalty rho in an update's score: factor of the squared L2 norm of its change of the model.",
    )

    @property
    def least(self) -> int:
        """One more than are left out."""
        return self.byzantine + 1

    def needs(self) -> Sequence[Need]:
        """Need validation images at the server, and models that say something of them."""
        path = ("spec", "evaluation", "validation")
        return (
            *super().needs(),
            Need(Fact.VALIDATION_IMAGES, "found none, but the aggregation zeno judges updates by them; add some", path=path),
            Need(Fact.CLASSIFIER_UNTRAINED, "found zeno, which judges classifiers, but no silo trains one; choose another", refused=True),
        )  # fmt: skip

    def select(
        self, updates: Sequence[ChunkSource], layout: Layout, model: ModelBytes, loss: Callable[[ModelBytes], float]
    ) -> Sequence[int]:
        """Return the n - b updates of the highest scores ``loss(w) - loss(w_k) - rho |w_k - w|^2``; of equal ones, the first.

        The paper's u is ``w - w_k``, its gamma 1; ``loss(w)`` is the same for all and is not computed. Norms are of the network's weights. One
        silo's model is in memory at a time.
        """
        origin = model if model.layout == layout else ModelBytes.from_arrays(layout, model.arrays())
        lengths, penalty = norms_of(updates, layout, origin), float(self.norm_penalty)
        costs = []
        for update, length in zip(updates, lengths, strict=True):
            cost = loss(model.with_tensors(weighted_mean([update], [1.0], layout))) + penalty * length.trained**2
            costs.append(float("inf") if isnan(cost) else cost)
        ranked = sorted(range(len(updates)), key=costs.__getitem__)
        return sorted(ranked[: max(1, len(updates) - self.byzantine)])

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return the mean of what was selected."""
        return weighted_mean(updates, weights, layout)

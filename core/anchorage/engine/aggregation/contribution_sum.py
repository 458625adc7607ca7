"""The asynchronous global model as an unnormalised sum: a commit costs O(model), whatever the number of silos (methods reference, 6.14)."""

import math

import numpy as np

from anchorage.engine.aggregation.mean import add_weighted
from anchorage.engine.aggregation.regions import assemble, float_regions, for_each_chunk
from anchorage.transport.tensors.chunks import ChunkSource, chunk_digest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


class ContributionSum:
    """Sum over the silos of weight times last committed update, in float64 (methods reference, 6.14: W and P).

    The sum drifts by rounding, about 1e-14 in 20,000 commits (KAT-F2); a restarted server builds it anew from the stored updates.

    Parameters
    ----------
    layout : Layout
        Layout of every update.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._regions = float_regions(layout)
        self._sums = [[np.zeros(region.count) for region in regions] for regions in self._regions]
        self._templates = [b""] * len(self._regions)
        self._weights: dict[str, float] = {}

    @property
    def total(self) -> float:
        """Sum of the weights; exact, so that it is zero when every weight is."""
        return math.fsum(self._weights.values())

    def commit(
        self,
        silo: str,
        weight: float,
        update: ChunkSource,
        previous: ChunkSource | None = None,
        previous_weight: float = 0.0,
    ) -> None:
        """Put a silo's update in the place of its previous one.

        Parameters
        ----------
        silo : str
            Whose update.
        weight : float
            How much it counts: finite, not negative.
        update : ChunkSource
            A whole update of finite numbers; its integers and booleans become the global model's.
        previous, previous_weight : ChunkSource or None, float
            The silo's update in the global model, None where it has none, and the weight it was committed with.

        Raises
        ------
        ValueError
            The weight is negative or not finite, or an update has another layout.
        """
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"the weight of {silo} is {weight}")
        parts = [(update, weight)] + ([(previous, -previous_weight)] if previous is not None else [])
        self._add(parts)
        self._weights[silo] = weight

    def remove(self, silo: str, previous: ChunkSource, previous_weight: float) -> None:
        """Take a silo's update out of the global model."""
        self._add([(previous, -previous_weight)])
        del self._weights[silo]

    def model(self) -> ModelBytes | None:
        """Return the weighted mean, None where no silo has a weight: the previous model is kept (methods reference, section 1, rule 2)."""
        total = self.total
        if total == 0:
            return None

        def encode(index: int) -> tuple[bytes, bytes]:
            regions = self._regions[index]
            encoded = [region.encode(sums / total) for region, sums in zip(regions, self._sums[index], strict=True)]
            data = assemble(regions, encoded, self._templates[index])
            return data, chunk_digest(data)

        chunks = for_each_chunk(encode, len(self._regions))
        return ModelBytes(self.layout, (data for data, _ in chunks), (digest for _, digest in chunks))

    def _add(self, parts: list[tuple[ChunkSource, float]]) -> None:
        if any(source.manifest.layout != self.layout.digest for source, _ in parts):
            raise ValueError("an update has another layout")

        def add(index: int) -> None:
            regions = self._regions[index]
            chunks = [source.chunk(index) for source, _ in parts]
            for region, sums in zip(regions, self._sums[index], strict=True):
                add_weighted(sums, [region.read(chunk) for chunk in chunks], [weight for _, weight in parts])
            if sum(region.stop - region.start for region in regions) < len(chunks[0]):
                self._templates[index] = bytes(chunks[0])  # a chunk may be a view of memory that is used again

        for_each_chunk(add, len(self._regions))

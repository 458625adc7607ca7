"""Running variances become those of the pooled data (methods reference, section 1, rule 5; KAT-Q1)."""

from collections.abc import Sequence

import numpy as np

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.engine.aggregation.single_tensors import TensorReader, numbers_in, with_tensors
from anchorage.pieces.slots import BatchNorm
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import BUFFERS
from anchorage.transport.tensors.model import ModelBytes

_MEAN, _VARIANCE, _ = BUFFERS


@piece("pooled")
class Pooled(BatchNorm):
    """Averaged, but running variances become those of all silos' data together."""

    def needs(self) -> Sequence[Need]:
        """Need rounds whose updates are pooled, every one of them."""
        message = "found pooled, but it is done once per round, and Asynchronous has none; set batchNorm: {average: {}}"
        robust = (
            "found pooled, which takes every silo's statistics as they are; set average, or aggregation: {mean: {}}"
        )
        return (Need(Fact.ROUNDS, message), Need(Fact.SUM_OF_UPDATES, robust))

    def refine(
        self,
        mean: ModelBytes,
        updates: Sequence[ChunkSource],
        weights: Sequence[float],
        announcements: Sequence[Announcement],
    ) -> ModelBytes:
        """Pool the running variances."""
        return pool_variances(mean, updates, weights)


def pool_variances(mean: ModelBytes, sources: Sequence[ChunkSource], weights: Sequence[float]) -> ModelBytes:
    """Replace averaged running variances by those of the pooled data: a variance within silos plus one between them (KAT-Q1).

    Reads the chunks that hold running means and variances, source by source, so memory does not grow with their number.

    Parameters
    ----------
    mean : ModelBytes
        The weighted mean of the sources.
    sources : sequence of ChunkSource
        The updates, in the layout of `mean`.
    weights : sequence of float
        One per source, not negative, not all zero.
    """
    entries = mean.layout.by_name
    pairs = [(entries[name], entries[name.removesuffix(_MEAN) + _VARIANCE]) for name in entries if name.endswith(_MEAN)]
    centres = [np.zeros(numbers_in(entry)) for entry, _ in pairs]
    spreads = [np.zeros(numbers_in(entry)) for entry, _ in pairs]
    total = 0.0
    for source, weight in zip(sources, weights, strict=True):
        if weight > 0:
            before, total = total, total + weight
            read = TensorReader(source)
            for (mean_entry, variance_entry), centre, spread in zip(pairs, centres, spreads, strict=True):
                away = read(mean_entry) - centre
                spread += weight * read(variance_entry) + weight * before / total * away**2
                centre += weight / total * away
    return with_tensors(mean, {entry: spread / total for (_, entry), spread in zip(pairs, spreads, strict=True)})

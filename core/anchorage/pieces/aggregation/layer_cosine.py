"""L-DAWA: every tensor of an update counts by its cosine to that of the global model (methods reference, N8.4)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.engine.aggregation.mean import weighted_mean
from anchorage.engine.aggregation.single_tensors import TensorReader, with_tensors
from anchorage.pieces.slots import Aggregation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import BUFFERS, Layout
from anchorage.transport.tensors.model import ModelBytes


@piece("layerCosine")
class LayerCosine(Aggregation):
    """Weights per tensor, by the cosine between the tensor in an update and in the global model (L-DAWA)."""

    normalised: Literal["Enabled", "Disabled"] = Field(
        "Enabled",
        description="Whether the weights of a tensor sum to 1. Enabled: cosines below 0 count as 0; running statistics, and tensors "
        "without a cosine above 0, are averaged. Disabled: cosines are divided by the number of updates, as in the published "
        "code: tensors shrink, and those of negative cosine change sign.",
    )

    def needs(self) -> Sequence[Need]:
        """Need updates that count alike: their weights are the cosines."""
        detail = "found another one, but layerCosine weighs each tensor itself; set uniform"
        return (Need(Fact.UNIFORM_WEIGHTS, detail, path=("spec", "method", "weighting")),)

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return the mean, tensor by tensor, with the cosines as weights; integers are those of the first update."""
        mean = weighted_mean(updates, weights, layout)
        counted = [source for source, weight in zip(updates, weights, strict=True) if weight > 0]
        normalised = self.normalised == "Enabled"
        origin, readers = TensorReader(model), [TensorReader(source) for source in counted]
        mean_tensors = {}
        for entry in layout.tensors:
            if not entry.dtype.startswith(("F", "BF")) or (normalised and entry.name.endswith(BUFFERS)):
                continue
            values = np.stack([read(entry) for read in readers])
            shares = tensor_shares(values, origin(model.layout.by_name[entry.name]), normalised=normalised)
            if shares is not None:
                mean_tensors[entry] = shares @ values
        return with_tensors(mean, mean_tensors)


def cosines(values: NDArray[np.float64], origin: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosine of each row of values [n, d] to a vector [d], -1 to 1; 0 where either is of zeros."""
    lengths = np.linalg.norm(values, axis=1) * np.linalg.norm(origin)
    similarities: NDArray[np.float64] = np.divide(
        values @ origin, lengths, out=np.zeros(len(values)), where=lengths > 0
    )
    return np.clip(similarities, -1.0, 1.0)


def tensor_shares(
    values: NDArray[np.float64], origin: NDArray[np.float64], *, normalised: bool
) -> NDArray[np.float64] | None:
    """Return by what the updates' values of one tensor are multiplied, float64 [n] (equation N41); None: the plain mean is to stay.

    Parameters
    ----------
    values : ndarray of float64, shape [n, d]
        The tensor in each update.
    origin : ndarray of float64, shape [d]
        In the model that the silos received.
    normalised : bool
        As `LayerCosine.normalised`.
    """
    similarities = cosines(values, origin)
    if not normalised:
        return similarities / len(similarities)
    positive_parts = np.maximum(similarities, 0.0)
    return positive_parts / positive_parts.sum() if positive_parts.any() else None

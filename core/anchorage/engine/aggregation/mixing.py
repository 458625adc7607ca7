"""How the server mixes an update into its model as it arrives, without a memory of the silos."""

from collections.abc import Callable

from anchorage.engine.aggregation.mean import weighted_mean
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


class Mixing:
    """Mixes with a weight that falls with the update's staleness.

    Parameters
    ----------
    alpha : float
        Weight of a fresh update, above 0 and at most 1.
    discount : callable
        ``discount(staleness)`` is the factor of the weight, above 0 and at most 1.
    """

    def __init__(self, alpha: float, discount: Callable[[int], float]) -> None:
        self._alpha, self.discount = alpha, discount

    def share(self, staleness: int) -> float:
        """Return the weight of an update in the new model, above 0 and at most alpha."""
        return self._alpha * self.discount(staleness)

    def mix(self, model: ModelBytes, update: ChunkSource, layout: Layout, share: float) -> ModelBytes:
        """Return the new model in the update's layout; integers and booleans are the update's.

        Parameters
        ----------
        model : ModelBytes
            The model so far; has every tensor of `layout`.
        update : ChunkSource
            A whole update of finite numbers.
        layout : Layout
            Layout of the update.
        share : float
            The update's weight, above 0 and at most 1.
        """
        before = model if model.layout == layout else ModelBytes.from_arrays(layout, model.trainable.arrays())
        return weighted_mean([update, before], [share, 1 - share], layout)

"""FedAsync: the server mixes every update into its model as it comes, without a memory of the silos (METHODS.md 6.14, KAT-G1)."""

from anchorage.api.method import ServerStep
from anchorage.engine.aggregation.mean import weighted_mean
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


class Mixing:
    """``x_t = (1 - alpha_t) x_{t-1} + alpha_t x_new`` with ``alpha_t = alpha s(staleness)`` (Xie et al. 2019, Algorithm 1).

    Staleness counts the models that the server made since the silo's download: 0 when nobody committed in between.

    Parameters
    ----------
    step : ServerStep
        The slot, of type Mix; its `alpha` is above 0 and at most 1.
    """

    def __init__(self, step: ServerStep) -> None:
        self._alpha, self._kind = float(step.alpha), step.staleness
        self._falloff, self._grace = float(step.falloff), step.grace

    def share(self, staleness: int) -> float:
        """Return the weight of an update in the new model, above 0 and at most alpha."""
        return self._alpha * self.discount(staleness)

    def discount(self, staleness: int) -> float:
        """Return s(staleness): 1 for a fresh update; falls with the exponent, or as a hinge after the grace."""
        match self._kind:
            case "Constant":
                return 1.0
            case "Polynomial":
                return float((staleness + 1) ** -self._falloff)
            case "Hinge":
                return 1.0 if staleness <= self._grace else 1 / (self._falloff * (staleness - self._grace) + 1)

    def mixed(self, model: ModelBytes, update: ChunkSource, layout: Layout, share: float) -> ModelBytes:
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
        before = model if model.layout == layout else ModelBytes.from_arrays(layout, model.arrays())
        return weighted_mean([update, before], [share, 1 - share], layout)


def build_mixing(step: ServerStep) -> Mixing | None:
    """Return how a method's server mixes updates; None where it keeps the silos' last ones instead."""
    return Mixing(step) if step.type == "Mix" else None

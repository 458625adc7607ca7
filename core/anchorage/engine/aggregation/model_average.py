"""The moving average of global models, which is evaluated and registered in their place (Polyak and Juditsky 1992; as in mean teachers)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.engine.aggregation.mean import NonFiniteUpdate, weighted_mean
from anchorage.transport.tensors.model import ModelBytes

_ROUNDS = "rounds"
_TRAINED = "trained/"


class ModelAverage:
    """Follows the global models of a stage: ``a_t = (1 - s) a_(t-1) + s x_t`` with ``s = max(1 - decay, 1 / t)``, so the first models count alike.

    All floating-point numbers are averaged, running statistics included; integers are the last model's.

    Parameters
    ----------
    decay : float
        Share of itself that the average keeps in a round, 0 to 1.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._rounds = 0
        self._average: ModelBytes | None = None
        self._trained: Mapping[str, NDArray[Any]] = {}

    def follow(self, model: ModelBytes) -> ModelBytes:
        """Take a round's global model, and return the average with its frozen tensors.

        Raises
        ------
        AnchorageError
            LOSS_NOT_FINITE: the model has a number that is not finite.
        """
        part = model.trainable
        self._rounds += 1
        share = max(1 - self._decay, 1 / self._rounds)
        if self._average is None:
            self._average = part
        else:
            try:
                self._average = weighted_mean([part, self._average], [share, 1 - share], part.layout)
            except NonFiniteUpdate as error:
                message = f"the global model's tensor {error.tensor} is not finite: lower learningRate or set clipNorm"
                raise AnchorageError(LOSS_NOT_FINITE, message) from error
        self._trained = part.arrays()
        return self.apply(model)

    def apply(self, model: ModelBytes) -> ModelBytes:
        """Return a model with the average in its place; before the first round the model itself."""
        return model if self._average is None else model.with_tensors(self._average)

    def resume(self, committed: ModelBytes) -> ModelBytes:
        """Take a committed average after `restore`, and return the model that training goes on from."""
        if not self._rounds:
            return committed
        self._average = committed.trainable
        return committed.with_tensors(ModelBytes.from_arrays(self._average.layout, self._trained))

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return how many rounds there were, and the model in training; nothing before the first round."""
        if not self._rounds:
            return {}
        return {_ROUNDS: np.array(self._rounds), **{_TRAINED + name: a for name, a in self._trained.items()}}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take what `state` returned."""
        self._rounds = int(state[_ROUNDS])
        self._trained = {n.removeprefix(_TRAINED): a for n, a in state.items() if n.startswith(_TRAINED)}

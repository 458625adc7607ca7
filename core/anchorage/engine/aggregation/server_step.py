"""Server optimisers: they turn the aggregated update into the global model, with a memory of earlier rounds."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.tensors.layout import BUFFERS
from anchorage.transport.tensors.model import ModelBytes

State = Mapping[str, NDArray[Any]]
Moments = dict[str, NDArray[np.float64]]


class ServerStep(Protocol):
    """Turns the mean of a round's updates into the global model. A function of its state and its arguments alone."""

    @property
    def scores_each_update(self) -> bool:
        """Whether every silo's own model is evaluated in place of the global one."""

    def apply(self, previous: ModelBytes, mean: ModelBytes, round_number: int, share: float = 1.0) -> ModelBytes:
        """Return the new model, in the layout of `mean`.

        Parameters
        ----------
        previous : ModelBytes
            The global model that the silos received; has every tensor of `mean`.
        mean : ModelBytes
            The weighted mean of the updates.
        round_number : int
            The round, from 1.
        share : float
            Silos whose updates are in the mean, of all members.
        """

    def state(self) -> State:
        """Return what the next round needs, to be kept in the checkpoint; empty before the first round."""

    def restore(self, state: State) -> None:
        """Continue from what a checkpoint kept."""


class StatelessStep:
    """A step without memory."""

    scores_each_update = False

    def state(self) -> State:
        """Return nothing."""
        return {}

    def restore(self, state: State) -> None:
        """Take nothing."""


class Stepper:
    """Steps every trained tensor by a rule that keeps moments; counted tensors are those of the mean.

    Parameters
    ----------
    rule : callable
        ``rule(delta, moments)`` returns the step for one tensor, float64, and updates its moments in place by name.
    """

    scores_each_update = False

    def __init__(self, rule: Callable[[NDArray[np.float64], Moments], NDArray[np.float64]]) -> None:
        self._rule = rule
        self._moments: dict[str, Moments] = {}

    def apply(self, previous: ModelBytes, mean: ModelBytes, round_number: int, share: float = 1.0) -> ModelBytes:
        """Step from `previous` towards `mean`; see `ServerStep.apply`."""
        before, arrays = previous.arrays(), mean.arrays()
        for name, array in arrays.items():
            if name.endswith(BUFFERS) or not np.issubdtype(array.dtype, np.floating):
                continue
            start = before[name].astype(np.float64)
            step = self._rule(array - start, self._moments.setdefault(name, {}))
            arrays[name] = (start + step).astype(array.dtype)
        return ModelBytes.from_arrays(mean.layout, arrays)

    def state(self) -> State:
        """Return the moments, float64, as ``m/NAME`` and ``v/NAME``."""
        return {f"{kind}/{name}": array for name, kinds in self._moments.items() for kind, array in kinds.items()}

    def restore(self, state: State) -> None:
        """Take moments that `state` returned."""
        self._moments = {}
        for key, array in state.items():
            kind, _, name = key.partition("/")
            self._moments.setdefault(name, {})[kind] = array.astype(np.float64)

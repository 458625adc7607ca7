"""CBAFed's residual weight connection (methods reference, 6.11)."""

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.piece import piece
from anchorage.engine.aggregation.server_step import State
from anchorage.pieces.server_step.whole_rounds import WholeRoundStep
from anchorage.transport.tensors.model import ModelBytes


@piece("residual")
class Residual(WholeRoundStep):
    """Mixture of the aggregated model with an earlier one, every few rounds (CBAFed)."""

    every: Annotated[int, Field(ge=1, le=10_000)] = Field(5, description="Number of rounds between mixtures.")
    record_share: Fraction = Field("0.5", description="Weight of the last mixture in the next one.")

    def step(self) -> "ResidualStep":
        """Return a step without a record yet."""
        return ResidualStep(self.every, float(self.record_share))


class ResidualStep:
    """Mixes the model with its record every few rounds (KAT-D2).

    Parameters
    ----------
    every : int
        Rounds between two mixtures.
    share : float
        Weight of the record in the mixture, 0 to 1.
    """

    scores_each_update = False

    def __init__(self, every: int, share: float) -> None:
        self._every, self._share = every, share
        self._record: dict[str, NDArray[Any]] = {}

    def apply(self, previous: ModelBytes, mean: ModelBytes, round_number: int, share: float = 1.0) -> ModelBytes:
        """Mix where the round is due, and remember the result; see `ServerStep.apply`."""
        if (round_number - 1) % self._every and self._record:
            return mean
        arrays = mean.arrays()
        for name, record in self._record.items():
            if np.issubdtype(record.dtype, np.floating):
                mixed = self._share * record.astype(np.float64) + (1 - self._share) * arrays[name]
                arrays[name] = mixed.astype(record.dtype)
        self._record = arrays
        return ModelBytes.from_arrays(mean.layout, arrays)

    def state(self) -> State:
        """Return the record, as ``record/NAME``."""
        return {f"record/{name}": array for name, array in self._record.items()}

    def restore(self, state: State) -> None:
        """Take a record that `state` returned."""
        self._record = {key.removeprefix("record/"): array for key, array in state.items()}

"""SOLO: every silo trains on its own, nothing is averaged (methods reference, 6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anchorage.api.piece import piece
from anchorage.engine.aggregation.server_step import StatelessStep
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.server_step.whole_rounds import WholeRoundStep
from anchorage.transport.tensors.model import ModelBytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound

_STATE_PREFIX = "own/"


@piece("keep")
class Keep(WholeRoundStep):
    """Silos continue from their own models, which are evaluated; nothing is averaged (SOLO)."""

    def step(self) -> KeepStep:
        """Return a step that keeps the model."""
        return KeepStep()

    def begin(self, silo_round: SiloRound) -> OwnModel:
        """Go on from the silo's own last model, where there is one."""
        return OwnModel(silo_round)


class KeepStep(StatelessStep):
    """The server keeps its model, whatever the silos made of theirs."""

    scores_each_update = True

    def apply(self, previous: ModelBytes, mean: ModelBytes, round_number: int, share: float = 1.0) -> ModelBytes:
        """Return `previous`, as far as `mean` reaches; see `ServerStep.apply`."""
        return ModelBytes.from_arrays(mean.layout, previous.arrays())


class OwnModel(RoundPart):
    """Keeps a silo's model from round to round."""

    resumes = True

    def __init__(self, silo_round: SiloRound) -> None:
        from anchorage.learning.weights import load_arrays

        self._network: Network = silo_round.network
        previous_arrays = {
            n.removeprefix(_STATE_PREFIX): array for n, array in silo_round.kept.items() if n.startswith(_STATE_PREFIX)
        }
        if previous_arrays:
            load_arrays(self._network, previous_arrays)

    def kept(self) -> Mapping[str, NDArray[Any]]:
        """Return the trained model."""
        from anchorage.learning.weights import trained_arrays

        return {_STATE_PREFIX + name: array for name, array in trained_arrays(self._network).items()}

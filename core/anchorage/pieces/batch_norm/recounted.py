"""What batch normalisation policies share whose running statistics the server counts anew on its anchors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from anchorage.api.errors.documents import NO_ANCHOR_DATA
from anchorage.api.fact import Fact
from anchorage.api.piece import Need
from anchorage.pieces.slots import BatchNorm

if TYPE_CHECKING:
    from anchorage.learning.network import Network
    from anchorage.learning.server_round import ServerRound


class RecountedNorms(BatchNorm):
    """The server counts running statistics anew over its anchors, after its training."""

    needs_network: ClassVar[bool] = True

    def needs(self) -> Sequence[Need]:
        """Need anchors, and rounds after which to count."""
        data = f"found nothing, but batchNorm {self.name} needs labelled anchors; add it"
        rounds = f"found {self.name}, but it is done once per round, and Asynchronous has none; set batchNorm: {{average: {{}}}}"
        return (
            Need(Fact.ANCHORS, data, failure=NO_ANCHOR_DATA, path=("spec", "anchorData")),
            Need(Fact.ROUNDS, rounds),
        )

    def finishes_model(self, *, judged: bool) -> bool:
        """Count in every round."""
        return True

    def finish_training(self, server_round: ServerRound, network: Network) -> None:
        """Count running statistics anew over the anchors."""
        recount(server_round, network)


def recount(server_round: ServerRound, network: Network) -> None:
    """Count the encoder's running statistics anew over the anchors, in an order drawn once per run."""
    from anchorage.learning.batch_norm import recalibrate
    from anchorage.learning.draws import Draws

    anchors = server_round.needed
    order = Draws(server_round.seed).numpy("batch-norm").permutation(len(anchors.indices))
    recalibrate(network, anchors.views, anchors.indices[order])

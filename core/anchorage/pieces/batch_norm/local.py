"""FedBN: normalisation stays at the silo (methods reference, section 1, rule 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import NO_ANCHOR_DATA
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import piece
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.batch_norm.recounted import recount
from anchorage.pieces.slots import BatchNorm
from anchorage.transport.tensors.layout import Layout, norm_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from anchorage.api.method import ResolvedMethod
    from anchorage.api.plan import Plan
    from anchorage.learning.network import Network
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.silo_round import SiloRound


@piece("local")
class LocalNorms(BatchNorm):
    """Batch-normalisation layers stay at each silo and are not aggregated (FedBN).

    For evaluation their statistics are estimated on the anchors. Of a network without them, the scales and shifts of its other normalisations stay,
    such as by groups; the server evaluates it with those that it began with.
    """

    needs_network: ClassVar[bool] = True

    def facts(self) -> frozenset[str]:
        """Say that updates travel without batch normalisation."""
        return frozenset({Fact.PARTIAL_NORMS, Fact.PERSONAL_NORMS})

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need anchors where the model is evaluated, unless its network is of maps, which count no statistics as a rule."""
        judged = Fact.EVALUATION in plan.facts and not plan.spec.task.gives_maps
        if judged and Fact.ANCHORS not in plan.facts:
            message = (
                f"found nothing, but {plan.method.name} with an evaluation of what batchNorm local leaves without statistics "
                "needs labelled anchors; add it"
            )
            yield Mistake(NO_ANCHOR_DATA, ("spec", "anchorData"), message)

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave out every tensor of the normalisation."""
        norm_layers = norm_names(layout)
        return layout.select(t.name for t in layout.tensors if t.name not in norm_layers)

    def begin(self, silo_round: SiloRound) -> OwnNorms:
        """Put the silo's own layers back."""
        return OwnNorms(silo_round)

    def finishes_model(self, *, judged: bool) -> bool:
        """Count where the model is evaluated or trained at the server."""
        return judged

    def finish_training(self, server_round: ServerRound, network: Network) -> None:
        """Estimate the statistics on the anchors."""
        self._recount(server_round, network)

    def before_scoring(self, server_round: ServerRound, network: Network) -> None:
        """Estimate the statistics on the anchors: without rounds nobody else does."""
        self._recount(server_round, network)

    def _recount(self, server_round: ServerRound, network: Network) -> None:
        from anchorage.learning.batch_norm import has_statistics

        if not has_statistics(network):
            return
        if server_round.anchors is None:
            detail = f"the network {server_round.model.network} counts statistics of batches, which batchNorm local estimates on anchors"
            raise AnchorageError(NO_ANCHOR_DATA, f"{detail}; add spec.anchorData")
        recount(server_round, network)

    def load_own_layers(self, network: Network, previous_state: Mapping[str, NDArray[Any]]) -> None:
        """Put back the silo's layers."""
        from anchorage.learning.batch_norm import load_norms

        load_norms(network, previous_state)


class OwnNorms(RoundPart):
    """Keeps a silo's normalisation from round to round."""

    resumes = True

    def __init__(self, silo_round: SiloRound) -> None:
        from anchorage.learning.batch_norm import load_norms

        self._network: Network = silo_round.network
        load_norms(self._network, silo_round.kept)

    def kept(self) -> Mapping[str, NDArray[Any]]:
        """Return every tensor of the normalisation."""
        from anchorage.learning.batch_norm import norm_arrays

        return norm_arrays(self._network)

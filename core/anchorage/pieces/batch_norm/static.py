"""Running statistics never leave the server (methods reference, section 1, rule 5; SemiFL, 6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.fact import Fact
from anchorage.api.piece import piece
from anchorage.pieces.batch_norm.recounted import RecountedNorms
from anchorage.transport.tensors.layout import BUFFERS, Layout

if TYPE_CHECKING:
    from anchorage.api.method import ResolvedMethod
    from anchorage.learning.network import Network


@piece("static")
class Static(RecountedNorms):
    """The server estimates running statistics on its anchors after each round; silos do not change or send them (SemiFL)."""

    def facts(self) -> frozenset[str]:
        """Say that updates travel without running statistics."""
        return frozenset({Fact.PARTIAL_NORMS})

    def before_training(self, network: Network) -> None:
        """Leave running statistics as they came."""
        from anchorage.learning.batch_norm import freeze_statistics

        freeze_statistics(network)

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave out what batch normalisation counts."""
        return layout.select(t.name for t in layout.tensors if not t.name.endswith(BUFFERS))

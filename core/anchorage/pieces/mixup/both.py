"""Mixup at silos and server (methods reference, 6.8)."""

from collections.abc import Sequence
from typing import ClassVar

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.pieces.mixup.fix_mix import FixMix, labels_fixed, server_trains


@piece("both")
class BothMixup(FixMix):
    """Mixup at silos and server."""

    at_silos: ClassVar[bool] = True
    at_server: ClassVar[bool] = True

    def facts(self) -> frozenset[str]:
        """Say that the server mixes its anchors."""
        return frozenset({Fact.SERVER_MIXUP})

    def needs(self) -> Sequence[Need]:
        """Need images with labels to mix at both."""
        return (labels_fixed(self.name), server_trains(self.name))

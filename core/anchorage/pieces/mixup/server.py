"""Mixup at the server (methods reference, 6.8)."""

from collections.abc import Sequence
from typing import ClassVar

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.pieces.mixup.fix_mix import FixMix, server_trains


@piece("server")
class ServerMixup(FixMix):
    """Mixup of the anchors at the server."""

    at_server: ClassVar[bool] = True

    def facts(self) -> frozenset[str]:
        """Say that the server mixes its anchors."""
        return frozenset({Fact.SERVER_MIXUP})

    def needs(self) -> Sequence[Need]:
        """Need images with labels to mix."""
        return (server_trains(self.name),)

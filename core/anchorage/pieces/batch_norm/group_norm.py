"""Group normalisation in place of batch normalisation (Wu and He 2018; in federations Hsieh et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorage.api.piece import piece
from anchorage.pieces.slots import BatchNorm

if TYPE_CHECKING:
    from anchorage.learning.network import Network


@piece("groupNorm")
class GroupNorms(BatchNorm):
    """Group normalisation in place of batch normalisation, which needs no statistics of batches."""

    def add_heads(self, network: Network) -> None:
        """Replace the encoder's layers before its weights are drawn.

        Raises
        ------
        AnchorageError
            NETWORK_UNUSABLE: a layer does more than normalise.
        """
        from anchorage.learning.batch_norm import replace_by_groups

        replace_by_groups(network.encoder)

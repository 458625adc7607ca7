"""FedAnchor's second head: a linear map of embeddings, which the server trains and silos only use (methods reference, 6.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.learning.hooks import LearningHooks

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.api.method import ResolvedMethod
    from anchorage.learning.network import Network
    from anchorage.transport.tensors.layout import Layout

WIDTH = 128
"""Width of its output."""

NAME = "anchor_head"


class WithAnchorHead(LearningHooks):
    """A piece that needs the head; several of one method share it."""

    needs_vectors: ClassVar[bool] = True

    def add_heads(self, network: Network) -> None:
        """Add a linear map with bias, unless another piece did."""
        from anchorage.learning.heads import EmbeddingHead

        if network.find_head(NAME) is None:
            network.add_head(NAME, EmbeddingHead(network.width, WIDTH), optional=True, at_silos=False)

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave the head out: no loss of a silo reaches it."""
        return layout.select(t.name for t in layout.tensors if not t.name.startswith(f"{NAME}."))


def anchor_outputs(network: Network, images: Tensor) -> Tensor:
    """Return the head's output [n, 128] for images, not normalised."""
    output: Tensor = network.head(NAME)(network.embed(images))
    return output

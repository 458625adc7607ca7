"""NaiveMix: a batch is mixed with one mean of other silos' images (methods reference, 6.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anchorage.api.piece import piece
from anchorage.pieces.input_mixing.means import Means
from anchorage.pieces.input_mixing.mixed_inputs import Others, mixed_loss

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anchorage.learning.local_training import Loss


@piece("naive")
class NaiveMix(Means):
    """A batch is mixed with one mean of other silos' images (NaiveMix)."""

    def mixed(
        self,
        network: nn.Module,
        loss: Loss,
        images: Tensor,
        labels: Tensor,
        others: Others | None,
        drawn: np.random.Generator,
    ) -> Tensor | None:
        """Return the loss of the batch mixed with one mean."""
        if others is None:
            return None
        return mixed_loss(network, loss, images, labels, *others.drawn(drawn, 1), float(self.share))

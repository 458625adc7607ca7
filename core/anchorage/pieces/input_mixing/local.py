"""LocalMix: images of a batch mixed with each other (methods reference, 6.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anchorage.api.piece import piece
from anchorage.pieces.input_mixing.mixed_inputs import MixedInputs, Others, mixed_loss

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anchorage.learning.local_training import Loss


@piece("local")
class LocalMix(MixedInputs):
    """Mixing of the images of a batch with each other."""

    def mixed(
        self,
        network: nn.Module,
        loss: Loss,
        images: Tensor,
        labels: Tensor,
        others: Others | None,
        drawn: np.random.Generator,
    ) -> Tensor:
        """Return the loss of the batch mixed with a permutation of itself."""
        import torch

        order = torch.from_numpy(drawn.permutation(len(images))).to(images.device)
        return mixed_loss(network, loss, images, labels, images[order], labels[order], float(self.share))

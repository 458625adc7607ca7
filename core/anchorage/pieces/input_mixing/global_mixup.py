"""Global Mixup: the silos' raw images are shared (methods reference, 6.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.piece import piece
from anchorage.pieces.input_mixing.mixed_inputs import Others, mixed_loss
from anchorage.pieces.input_mixing.pool import Pooled

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anchorage.learning.local_training import Loss
    from anchorage.learning.silo_round import SiloRound


@piece("global")
class GlobalMixup(Pooled):
    """Each image is mixed with a raw image of another silo (Global Mixup, an upper bound that shares images)."""

    names: ClassVar[tuple[str, str]] = ("raw_images", "raw_labels")

    def groups(self, silo_round: SiloRound) -> list[NDArray[np.int64]]:
        """Return every image by itself."""
        return [np.array([index]) for index in range(len(silo_round.images.labelled))]

    def mixed(
        self,
        network: nn.Module,
        loss: Loss,
        images: Tensor,
        labels: Tensor,
        others: Others | None,
        drawn: np.random.Generator,
    ) -> Tensor | None:
        """Return the loss of the batch, each image mixed with another one."""
        if others is None:
            return None
        return mixed_loss(network, loss, images, labels, *others.drawn(drawn, len(images)), float(self.share))

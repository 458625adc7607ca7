"""Global Mixup: the silos' raw images are shared (methods reference, 6.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.piece import piece
from anchorage.pieces.input_mixing.pool import Pooled

if TYPE_CHECKING:
    from anchorage.learning.silo_round import SiloRound


@piece("global")
class GlobalMixup(Pooled):
    """Mixing of each image with a raw image of another silo (Global Mixup)."""

    names: ClassVar[tuple[str, str]] = ("raw_images", "raw_labels")

    def groups(self, silo_round: SiloRound) -> list[NDArray[np.int64]]:
        """Return every image by itself."""
        return [np.array([index]) for index in range(len(silo_round.images.labelled))]

    def drawn_for(self, batch: int) -> int:
        """Return one image of the pool for each of the batch."""
        return batch

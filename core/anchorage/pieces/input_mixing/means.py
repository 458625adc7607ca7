"""What NaiveMix and FedMix share: means of a few images leave a silo (methods reference, 6.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.pieces.input_mixing.pool import Pooled

if TYPE_CHECKING:
    from anchorage.learning.silo_round import SiloRound


class Means(Pooled):
    """Mixes with means of other silos' images."""

    group_size: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        5,
        description="Number of images whose mean leaves a silo. A larger group shows less of an image, and makes the pool smaller.",
    )

    def groups(self, silo_round: SiloRound) -> list[NDArray[np.int64]]:
        """Return groups of `group_size`, shuffled once per run; what is left over joins the last group."""
        from anchorage.learning.draws import Draws

        draws, size = Draws(silo_round.run.seed, silo=silo_round.draws.silo), self.group_size
        order = draws.numpy("mean-images").permutation(len(silo_round.images.labelled))
        return np.split(order, np.arange(size, len(order) - size + 1, size))

"""Cross entropy (methods reference, 6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import LocalLoss

if TYPE_CHECKING:
    from anchorage.learning.local_training import Labelled, Loss


@piece("crossEntropy")
class CrossEntropy(LocalLoss):
    """Cross entropy."""

    per_image = True
    resumes: ClassVar[bool] = True

    def loss(self, data: Labelled, num_classes: int) -> Loss:
        """Return the mean cross entropy."""
        from torch.nn import functional

        return functional.cross_entropy

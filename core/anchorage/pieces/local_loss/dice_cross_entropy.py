"""Cross entropy and Dice over masks: the loss of a segmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import LocalLoss

if TYPE_CHECKING:
    from anchorage.learning.local_training import Labelled, Loss
    from anchorage.learning.model_hooks import TaskHooks


@piece("diceCrossEntropy")
class DiceCrossEntropy(LocalLoss):
    """Cross entropy over pixels, plus 1 less the mean Dice of the foreground classes over the whole batch."""

    tasks: ClassVar[frozenset[str] | None] = frozenset({"segmentation"})
    resumes: ClassVar[bool] = True

    def loss(self, data: Labelled, task: TaskHooks) -> Loss:
        """Return the task's own loss, which it is (`anchorage.algorithms.dice`)."""
        return task.loss

"""The task's own loss on labelled images, such as cross entropy (methods reference, 6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.pieces.slots import LocalLoss

if TYPE_CHECKING:
    from anchorage.learning.local_training import Labelled, Loss
    from anchorage.learning.model_hooks import TaskHooks


@piece("taskLoss")
class TaskLoss(LocalLoss):
    """The task's own loss, which is cross entropy for classification."""

    tasks: ClassVar[frozenset[str] | None] = None
    per_image = True
    resumes: ClassVar[bool] = True

    def loss(self, data: Labelled, task: TaskHooks) -> Loss:
        """Return the task's mean loss."""
        return task.loss

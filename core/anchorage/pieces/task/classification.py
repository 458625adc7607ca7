"""Every image is of exactly one class (methods reference, section 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from anchorage.api.piece import piece
from anchorage.pieces.slots import ImageTask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.api.model_card import Assessment
    from anchorage.learning.model_hooks import Scores


@piece("classification")
class Classification(ImageTask):
    """Every image is of exactly one class."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the softmax of logits [n, C], in their dtype."""
        return logits.softmax(1)

    def scores(self, labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> Scores:
        """Predict the most probable class, and compare it with labels [n]."""
        from anchorage.learning.metrics import classification_metrics, confusion_matrix
        from anchorage.learning.model_hooks import Scores

        predictions = probabilities.argmax(1)
        metrics = classification_metrics(labels, probabilities)
        return Scores(metrics, predictions, confusion_matrix(labels, predictions, len(self.classes)))

    def assessment(
        self,
        part: Literal["test", "validation"],
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        rng: np.random.Generator,
    ) -> Assessment:
        """Score each class against the rest."""
        from anchorage.learning.assessment import assess

        return assess(part, self.classes, labels, probabilities, rng)

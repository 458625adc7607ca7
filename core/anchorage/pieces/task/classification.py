"""Classification: every image is of exactly one class (methods reference, section 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field

from anchorage.api.piece import piece
from anchorage.api.task import ClassName, MetricName, OutputKind, Tally, TallyArray
from anchorage.pieces.slots import ImageTask
from anchorage.pieces.task.confusion import balanced_accuracy, micro_f1
from anchorage.pieces.task.names import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.api.model_card import Assessment
    from anchorage.learning.data.classes import SiteClasses
    from anchorage.learning.data.labels import ReadLabels
    from anchorage.learning.model_hooks import Chart, Scored

_LEAST = 2


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    return distinct(names, _LEAST, "class", "classes")


@piece("classification")
class Classification(ImageTask):
    """Classification: every image is of exactly one class."""

    metrics: ClassVar[Sequence[MetricName]] = (
        MetricName("balanced_accuracy"),
        MetricName("accuracy"),
        MetricName("macro_auc"),
    )

    output_kind: ClassVar[OutputKind] = OutputKind.EXCLUSIVE

    classes: Annotated[tuple[ClassName, ...], Field(max_length=10_000), AfterValidator(_distinct)] = Field(
        description="Names of the classes, in the order of the model's outputs. Folders, labels and columns of every site are matched with "
        "them by name.",
        json_schema_extra={"minItems": _LEAST},
    )

    @property
    def outputs(self) -> Sequence[str]:
        """The classes: one logit for each."""
        return self.classes

    @property
    def label_names(self) -> Sequence[str]:
        """The classes."""
        return self.classes

    def tally_arrays(self) -> Sequence[TallyArray]:
        """Return the confusion matrix."""
        count = len(self.classes)
        meaning = "how many images of each class (rows) were taken for which class (columns)"
        return (TallyArray("confusion", (count, count), "int64", meaning),)

    def scores(self, tally: Tally) -> Mapping[str, float]:
        """Return balanced accuracy and accuracy."""
        counts = tally["confusion"]
        return {"balanced_accuracy": balanced_accuracy(counts), "accuracy": micro_f1(counts)}

    def images(self, tally: Tally) -> int:
        """Return the sum of the confusion matrix."""
        return int(tally["confusion"].sum())

    def is_sound(self, tally: Tally, most: int) -> bool:
        """Return whether it counts 1 to `most` images, and none less than 0 times."""
        return super().is_sound(tally, most) and bool((tally["confusion"] >= 0).all())

    def prediction(self, numbers: Sequence[float], thresholds: Mapping[str, float] | None = None) -> Mapping[str, Any]:
        """Return the most probable class, with the probability of each."""
        return {"class": self.classes[int(np.argmax(numbers))], **super().prediction(numbers)}

    def label_reader(
        self, class_map: Mapping[str, str], unknown: Literal["Refuse", "Skip", "Unlabelled"] = "Refuse"
    ) -> SiteClasses:
        """Match a site's names with the classes."""
        from anchorage.learning.data.classes import SiteClasses

        return SiteClasses(self.classes, class_map, unknown)

    def stand_ins(self, count: int) -> ReadLabels:
        """Return classes one after another."""
        from anchorage.learning.data.labels import ReadLabels

        labels = np.arange(count) % len(self.classes)
        return ReadLabels(labels, labels, self.classes)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of logits [n, C] and classes [n] (methods reference, 6.1)."""
        from torch.nn import functional

        return functional.cross_entropy(logits, labels)

    def activated(self, logits: Tensor) -> Tensor:
        """Return the softmax of logits [n, C], in their dtype."""
        return logits.softmax(1)

    def tally(self, labels: NDArray[np.int64], activated: NDArray[np.float64]) -> Tally:
        """Count the most probable classes."""
        from anchorage.algorithms.classification_metrics import confusion_matrix

        return {"confusion": confusion_matrix(labels, activated.argmax(1), len(self.classes))}

    def evaluate(self, labels: NDArray[np.int64], activated: NDArray[np.float64]) -> Mapping[str, float]:
        """Return the metrics of `anchorage.algorithms.classification_metrics.classification_metrics`."""
        from anchorage.algorithms.classification_metrics import classification_metrics

        return classification_metrics(labels, activated)

    def assessment(self, scored: Scored, rng: np.random.Generator, validation: Scored | None = None) -> Assessment:
        """Score each class against the rest."""
        from anchorage.algorithms.assessment import assess

        return assess(scored.part, self.classes, scored.labels, scored.activated, rng)

    def true_and_predicted(self, labels: NDArray[np.int64], activated: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the true and the most probable class."""
        return np.column_stack([labels, activated.argmax(1)]).astype(np.float64)

    def details(self, tally: Tally) -> Mapping[str, float]:
        """Return the recall of each class that has images, as ``recall/CLASS``."""
        counts = tally["confusion"]
        truths = counts.sum(1)
        return {f"recall/{name}": counts[c, c] / truths[c] for c, name in enumerate(self.classes) if truths[c]}

    def charts(self, assessment: Assessment) -> Iterator[Chart]:
        """Yield confusion matrix, reliability, and the ROC curve of each class."""
        from anchorage.pieces.task.classification_charts import assessment_charts

        return assessment_charts(assessment)

    def tally_charts(self, tally: Tally) -> Iterator[Chart]:
        """Yield the confusion matrix."""
        from anchorage.pieces.task.classification_charts import confusion_chart

        yield confusion_chart(tally["confusion"], self.classes)

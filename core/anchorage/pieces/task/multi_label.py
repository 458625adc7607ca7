"""Multi-label classification: an image has any of several findings, or none, and some of them nobody knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field

from anchorage.api.piece import piece
from anchorage.api.task import ClassName, MetricName, OutputKind, Tally, TallyArray
from anchorage.pieces.slots import ImageTask
from anchorage.pieces.task.names import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.api.model_card import Assessment
    from anchorage.learning.data.findings import SiteFindings
    from anchorage.learning.data.labels import ReadLabels
    from anchorage.learning.model_hooks import Chart, Scored

MOST_LABELS = 1000
_BINS = 100


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    return distinct(names, 1, "label", "labels")


@piece("multiLabel")
class MultiLabel(ImageTask):
    """Multi-label classification: an image has any of several findings, or none, and some of them may be unknown or uncertain.

    Labels are int8 [n, L]: 1, 0, 2 for uncertain, -1 for unknown. An image of which any entry is not unknown is labelled: one whose findings are
    all absent, and one of which someone said that they are uncertain.
    """

    metrics: ClassVar[Sequence[MetricName]] = (
        MetricName("macro_auroc"),
        MetricName("mean_average_precision"),
        MetricName("brier", higher_is_better=False),
    )
    output_kind: ClassVar[OutputKind] = OutputKind.INDEPENDENT
    one_of_several: ClassVar[bool] = False
    mean_over_images: ClassVar[bool] = False
    chooses_thresholds: ClassVar[bool] = True

    labels: Annotated[tuple[ClassName, ...], Field(max_length=MOST_LABELS), AfterValidator(_distinct)] = Field(
        description="Names of the findings, in the order of the model's outputs. Columns, words and folders of every site are matched with "
        "them by name, in any case. A finding that a site does not name is unknown there, not negative.",
        json_schema_extra={"minItems": 1},
    )

    @property
    def outputs(self) -> Sequence[str]:
        """The findings: one logit for each."""
        return self.labels

    @property
    def label_names(self) -> Sequence[str]:
        """The findings."""
        return self.labels

    def tally_arrays(self) -> Sequence[TallyArray]:
        """Return the number of images, and histograms of the findings' probabilities."""
        meaning = "for each finding, how many images without it, and with it, have a probability in each of 100 ranges of equal width"
        return (
            TallyArray("scored_images", (), "int64", "number of images"),
            TallyArray("score_counts", (2, len(self.labels), _BINS), "int64", meaning),
        )

    def scores(self, tally: Tally) -> Mapping[str, float]:
        """Return mean area and mean average precision over the findings that have one, up to the width of a range."""
        from anchorage.algorithms.multi_label_metrics import counts_of, ranking_scores

        return ranking_scores([counts_of(tally["score_counts"], place) for place in range(len(self.labels))])

    def images(self, tally: Tally) -> int:
        """Return the count."""
        return int(tally["scored_images"])

    def is_sound(self, tally: Tally, most: int) -> bool:
        """Return whether it counts 1 to `most` images, and of each finding no more than these, and none less than 0 times."""
        if not super().is_sound(tally, most):
            return False
        counts = tally["score_counts"]
        return bool((counts >= 0).all() and (counts.sum((0, 2)) <= self.images(tally)).all())

    def suppressed(self, tally: Tally, minimum: int) -> Tally:
        """Leave out each finding of which there are fewer positives, or fewer negatives: it is as unknown."""
        counts = tally["score_counts"].copy()
        counts[:, (counts.sum(2) < minimum).any(0)] = 0
        return {**tally, "score_counts": counts}

    def prediction(self, numbers: Sequence[float], thresholds: Mapping[str, float] | None = None) -> Mapping[str, Any]:
        """Return the probability of each finding, and, where the model has thresholds, which findings reach theirs."""
        prediction = super().prediction(numbers)
        if not thresholds:
            return prediction
        findings = [
            name for name, number in zip(self.labels, numbers, strict=True) if number >= thresholds.get(name, np.inf)
        ]
        return {"findings": findings, **prediction, "thresholds": dict(thresholds)}

    def label_reader(
        self, class_map: Mapping[str, str], unknown: Literal["Refuse", "Skip", "Unlabelled"] = "Refuse"
    ) -> SiteFindings:
        """Match a site's words with the findings."""
        from anchorage.learning.data.findings import SiteFindings

        return SiteFindings(self.labels, class_map, unknown)

    def stand_ins(self, count: int) -> ReadLabels:
        """Return one finding after another, and then none."""
        from anchorage.learning.data.findings import NO_FINDING, rarest
        from anchorage.learning.data.labels import ReadLabels

        outputs = len(self.labels)
        labels = (np.arange(count)[:, None] % (outputs + 1) == np.arange(outputs)).astype(np.int8)
        return ReadLabels(labels, rarest(labels), (*self.labels, NO_FINDING))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean binary cross entropy of logits [n, L] over the known entries of labels [n, L]; exactly 0 without one."""
        from anchorage.algorithms.binary_losses import masked_cross_entropy

        return masked_cross_entropy(logits, labels)

    def activated(self, logits: Tensor) -> Tensor:
        """Return the sigmoid of logits [n, L], in their dtype."""
        return logits.sigmoid()

    def tally(self, labels: NDArray[np.int8], activated: NDArray[np.float64]) -> Tally:
        """Count images by the probability of each finding that is known of them."""
        from anchorage.algorithms.multi_label_metrics import histograms

        return {"scored_images": np.array(len(labels), np.int64), "score_counts": histograms(labels, activated)}

    def evaluate(self, labels: NDArray[np.int8], activated: NDArray[np.float64]) -> Mapping[str, float]:
        """Return the metrics of `anchorage.algorithms.multi_label_metrics.multi_label_metrics`."""
        from anchorage.algorithms.multi_label_metrics import multi_label_metrics

        return multi_label_metrics(labels, activated)

    def assessment(self, scored: Scored, rng: np.random.Generator, validation: Scored | None = None) -> Assessment:
        """Score each finding at the threshold that the validation images choose."""
        from anchorage.algorithms.multi_label_assessment import assess_findings

        return assess_findings(self.labels, scored, rng, validation)

    def true_and_predicted(self, labels: NDArray[np.int8], activated: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many findings are present, of those that are known, and how many of these the model expects."""
        known = (labels == 0) | (labels == 1)
        return np.column_stack([(labels == 1).sum(1), (activated * known).sum(1)]).astype(np.float64)

    def details(self, tally: Tally) -> Mapping[str, float]:
        """Return the area of each finding that has one, as ``auroc/NAME``."""
        from anchorage.algorithms.multi_label_metrics import auroc, counts_of

        areas = ((name, auroc(counts_of(tally["score_counts"], c))) for c, name in enumerate(self.labels))
        return {f"auroc/{name}": area for name, area in areas if area is not None}

    def charts(self, assessment: Assessment) -> Iterator[Chart]:
        """Yield reliability, and the ROC curve of each finding."""
        from anchorage.pieces.task.multi_label_charts import assessment_charts

        return assessment_charts(assessment)

    def tally_charts(self, tally: Tally) -> Iterator[Chart]:
        """Yield the reliability of a round, and the ROC curves."""
        from anchorage.pieces.task.multi_label_charts import tally_charts

        counts = tally.get("score_counts")
        return iter(()) if counts is None or not counts.any() else tally_charts(self.labels, counts)

"""DVW: an update counts by its model's score on the validation images of all silos (methods reference, 6.14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE, TOO_FEW_SILOS
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import MULTI_LABEL, ONE_CLASS_EACH, Task
from anchorage.engine.aggregation.weigher import Announcements, BaseWeigher, Evaluations
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.slots import Weighting
from anchorage.pieces.task.confusion import SCORES, Counts
from anchorage.transport.messages import VALIDATION, Announcement, AuxiliaryData

if TYPE_CHECKING:
    from anchorage.api.plan import Plan
    from anchorage.learning.silo_round import SiloRound

Metric = Literal["MicroF1", "MacroF1", "BalancedAccuracy", "GeometricMean", "MCC", "MacroAUROC", "Dice"]
_OF_TASKS: Mapping[str, Sequence[str]] = {
    "classification": tuple(SCORES),
    "multiLabel": ("MacroAUROC",),
    "segmentation": ("Dice",),
}
"""Metrics by the names of the tasks that they score."""

_PARTS = 3
"""Axes of what is counted by finding or class."""

MOST_OF_OTHERS = 3
"""So many times the validation images of all others together may one silo's count."""


@piece("dvw")
class Dvw(Weighting):
    """Score of the model on the validation images of all silos (DVW; Metis)."""

    tasks: ClassVar[frozenset[str] | None] = ONE_CLASS_EACH | MULTI_LABEL

    metric: Metric = Field(
        "MicroF1",
        description="Metric by which a model is scored on the silos' validation images. MacroAUROC: of several findings per image, the "
        "mean area under the ROC curves. Dice: of a segmentation, the mean over classes of the mean over images that have "
        "them. The others: of one class per image.",
    )
    validation_percent: Annotated[int, Field(ge=1, le=50)] = Field(
        5, description="Percentage of each silo's images that is kept from training for validation."
    )
    sharpening: AboveZero = Field(
        "1",
        description="Exponent kappa of the score. Raise it to set good and bad models further apart: scores alone differ little.",
    )

    def facts(self) -> frozenset[str]:
        """Say that other silos score the silo's whole model."""
        return frozenset({Fact.SCORED_BY_SILOS})

    def needs(self) -> Sequence[Need]:
        """Need other silos, a trained classifier, and whole models."""
        return (
            Need(
                Fact.OTHER_SILOS,
                "found dvw, which has each model scored by the other silos, but there is 1 silo; add silos",
                failure=TOO_FEW_SILOS,
            ),
            Need(
                Fact.CLASSIFIER_UNTRAINED,
                "found dvw, which scores the classifier, but no silo trains one; set weighting: {sampleCount: {}}",
                refused=True,
            ),
            Need(
                Fact.PARTIAL_NORMS,
                "found updates without all of it, but the weighting dvw has them scored by other silos; set average",
                refused=True,
                path=("spec", "method", "batchNorm"),
            ),
        )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Refuse a metric of another task."""
        task = plan.spec.task.name
        fitting = _OF_TASKS.get(task, ())
        if fitting and self.metric not in fitting:
            message = f"found {self.metric}, which does not score the task {task}; set {' or '.join(fitting)}"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("metric"), message)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the silo's own tally."""
        shape = {"MicroF1": "[2] int64", "MacroAUROC": "[2, L, 100] int64", "Dice": "[2, C - 1, 1] float64"}
        counted = {
            "MacroAUROC": "numbers of the silo's validation images without each finding, and with it, by the trained model's probability of it",
            "Dice": "sums over the silo's validation images that have each foreground class, of 1 less the trained model's Dice, and of its Dice",
        }
        meaning = "the trained model's right and all predictions, or confusion matrix, on the silo's validation images"
        return (
            AuxiliaryArray(
                VALIDATION, shape.get(self.metric, "[C, C] int64"), counted.get(self.metric, meaning), up=True
            ),
        )

    def held_out_percent(self) -> int:
        """Keep images for validation."""
        return self.validation_percent

    def weigher(self, task: Task) -> ValidationWeigher:
        """Return the weigher."""
        return ValidationWeigher(self.metric, len(task.outputs), float(self.sharpening))

    def tally(self, labels: NDArray[Any], activated: NDArray[np.float64]) -> NDArray[Any]:
        """Return what the metric is calculated of.

        MicroF1: right and all predictions, int64 [2]. MacroAUROC: histograms, int64 [2, L, 100]. Dice: sums, float64 [2, C - 1, 1]. Others: the
        confusion matrix, int64 [C, C].
        """
        if self.metric == "MacroAUROC":
            from anchorage.algorithms.multi_label_metrics import histograms

            return histograms(labels, activated)
        if self.metric == "Dice":
            return dice_sums(activated)
        predictions = activated.argmax(1)
        if self.metric == "MicroF1":
            return np.array([(predictions == labels).sum(), len(predictions)], np.int64)
        from anchorage.algorithms.classification_metrics import confusion_matrix

        return confusion_matrix(labels, predictions, activated.shape[1])

    def suppressed(self, counts: NDArray[Any], minimum: int) -> NDArray[Any]:
        """Leave out each finding of which fewer images are positive, or fewer negative, and each class that fewer images have."""
        if counts.ndim != _PARTS:
            return counts
        of_parts = counts.sum(2)
        few = (of_parts < minimum).any(0) if self.metric == "MacroAUROC" else of_parts.sum(0) < minimum - 0.5
        shown_counts = counts.copy()
        shown_counts[:, few] = 0
        return shown_counts

    def begin(self, silo_round: SiloRound) -> OwnScore | None:
        """Score the trained model; a validation cycle has done so already."""
        return OwnScore(silo_round) if silo_round.run.method.local.cycle is None else None


class OwnScore(RoundPart):
    """The silo's own score of what it trained."""

    resumes = True

    def __init__(self, silo_round: SiloRound) -> None:
        self._score = silo_round.score

    def auxiliary(self) -> AuxiliaryData:
        """Return ``validation``."""
        counts = self._score()
        assert counts is not None, "this weighting counts"
        return {VALIDATION: counts}


class ValidationWeigher(BaseWeigher):
    """Weight is the model's score on the validation images of all silos together: DVW (KAT-E1 to E5).

    Pools every `Evaluation.tally` of an update with the silo's own ``validation``, `bound_counts`; a score below 0 counts as 0.

    Parameters
    ----------
    metric : str
        Of `Dvw.metric`.
    outputs : int
        Classes C, or findings L.
    sharpening : float
        Power of the score, above 0: scores alone hardly set models apart (KAT-E3).
    """

    evaluated = True

    def __init__(self, metric: str, outputs: int, sharpening: float = 1.0) -> None:
        from anchorage.algorithms.multi_label_metrics import BINS

        self._score, self._sharpening = _SCORES[metric], sharpening
        shapes = {"MicroF1": (2,), "MacroAUROC": (2, outputs, BINS), "Dice": (2, outputs - 1, 1)}
        self._shape = shapes.get(metric, (outputs, outputs))

    def _sound(self, announcement: Announcement) -> bool:
        validation_counts = announcement.auxiliary_data.get(VALIDATION)
        return super()._sound(announcement) and (validation_counts is None or self._counts(validation_counts))

    def _counts(self, counts: Counts) -> bool:
        right, total = counts if counts.shape == (2,) else (0, 0)
        return counts.shape == self._shape and bool((counts >= 0).all() and right <= total)

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        weights = {}
        for silo, announcement in active.items():
            count_tables = [each.tally[VALIDATION] for each in evaluations.get(silo, ()) if VALIDATION in each.tally]
            if (validation_counts := announcement.auxiliary_data.get(VALIDATION)) is not None:
                count_tables.insert(0, validation_counts)
            if len(self._shape) == _PARTS:  # sums that are not whole numbers differ by their order
                count_tables.sort(key=lambda counts: counts.tobytes())
            tallies = bound_counts([counts for counts in count_tables if self._counts(counts)])
            pooled = sum(tallies, np.zeros(self._shape, np.int64))
            weights[silo] = max(0.0, self._score(pooled)) ** self._sharpening
        return weights


def dice_sums(compared: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 less Dice, and Dice, summed over the images that have each foreground class, float64 [2, C - 1, 1].

    Parameters
    ----------
    compared : ndarray of float64, shape [n, C, 3]
        Pixels rightly, wrongly and not predicted as each class (`anchorage.pieces.task.segmentation_scores.compare`).
    """
    from anchorage.pieces.task.segmentation_scores import Overlaps

    overlaps = Overlaps.of(compared)
    dice = np.where(overlaps.has, overlaps.dice, 0.0)
    sums: NDArray[np.float64] = np.stack([np.where(overlaps.has, 1 - dice, 0.0).sum(0), dice.sum(0)])
    return sums[..., None]


def mean_dice(sums: Counts) -> float:
    """Return the mean over foreground classes of the mean over the images that have them, of `dice_sums`; 0 where no image has any."""
    cases = sums.sum((0, 2))
    class_dice = sums[1, :, 0][cases > 0] / cases[cases > 0]
    return float(class_dice.mean()) if len(class_dice) else 0.0


def mean_area(counts: Counts) -> float:
    """Return the mean area under the ROC curves of the findings that have one, of histograms [2, L, k]; 0 where none has."""
    from anchorage.algorithms.multi_label_metrics import counts_of, ranking_scores

    whole_counts = np.rint(counts).astype(np.int64) if counts.dtype.kind == "f" else counts.astype(np.int64)
    scores = ranking_scores([counts_of(whole_counts, place) for place in range(whole_counts.shape[1])])
    return scores.get("macro_auroc", 0.0)


_SCORES: Mapping[str, Callable[[Counts], float]] = {**SCORES, "MacroAUROC": mean_area, "Dice": mean_dice}


def bound_counts(tallies: Sequence[Counts]) -> Sequence[Counts]:
    """Shorten the counts of an evaluator that has more than `MOST_OF_OTHERS` times the images of all others together; of two there is none.

    Otherwise one silo that claims to have scored a hundred million images would decide on everybody's weight.
    """
    sizes = [int(counts[1] if counts.shape == (2,) else counts.sum()) for counts in tallies]
    if sum(size > 0 for size in sizes) < 3:
        return tallies
    most = [MOST_OF_OTHERS * (sum(sizes) - size) for size in sizes]
    return [
        counts * (bound / size) if size > bound else counts
        for counts, size, bound in zip(tallies, sizes, most, strict=True)
    ]

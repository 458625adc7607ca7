"""DVW: an update counts by its model's score on the validation images of all silos (methods reference, 6.14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero
from anchorage.api.errors.documents import TOO_FEW_SILOS
from anchorage.api.fact import Fact
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import CLASSIFICATION, Task
from anchorage.engine.aggregation.weigher import Announcements, BaseWeigher, Evaluations
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.slots import Weighting
from anchorage.pieces.task.confusion import SCORES, Counts
from anchorage.transport.messages import VALIDATION, Announcement, AuxiliaryData

if TYPE_CHECKING:
    from anchorage.learning.silo_round import SiloRound

MOST_OF_OTHERS = 3
"""So many times the validation images of all others together may one silo's count."""


@piece("dvw")
class Dvw(Weighting):
    """Score of the model on the validation images of all silos (DVW; Metis)."""

    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION

    metric: Literal["MicroF1", "MacroF1", "BalancedAccuracy", "GeometricMean", "MCC"] = Field(
        "MicroF1", description="Metric by which a model is scored on the silos' validation images."
    )
    validation_percent: Annotated[int, Field(ge=1, le=50)] = Field(
        5, description="Percentage of each silo's images that is kept from training as validation images."
    )
    sharpening: AboveZero = Field(
        "1",
        description="Exponent kappa of the score. Raise it to set good models further apart from bad ones: scores alone differ little.",
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

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the silo's own tally."""
        shape = "[2] int64" if self.metric == "MicroF1" else "[C, C] int64"
        meaning = "the trained model's right and all predictions, or confusion matrix, on the silo's validation images"
        return (AuxiliaryArray("validation", shape, meaning, up=True),)

    def held_out_percent(self) -> int:
        """Keep images for validation."""
        return self.validation_percent

    def weigher(self, task: Task) -> ValidationWeigher:
        """Return the weigher."""
        return ValidationWeigher(self.metric, len(task.outputs), float(self.sharpening))

    def tally(self, labels: NDArray[np.int64], activated: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return right and all predictions, int64 [2], or for other metrics the confusion matrix, int64 [C, C]."""
        predictions = activated.argmax(1)
        if self.metric == "MicroF1":
            return np.array([(predictions == labels).sum(), len(predictions)], np.int64)
        from anchorage.algorithms.classification_metrics import confusion_matrix

        return confusion_matrix(labels, predictions, activated.shape[1])

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

    Pools every `Evaluation.tally` of an update with the silo's own ``validation``, `bounded`; a score below 0 counts as 0.

    Parameters
    ----------
    metric : str
        Name of one of `SCORES`.
    num_classes : int
        Classes C.
    sharpening : float
        Power of the score, above 0: scores alone hardly set models apart (KAT-E3).
    """

    evaluated = True

    def __init__(self, metric: str, num_classes: int, sharpening: float = 1.0) -> None:
        self._score, self._sharpening = SCORES[metric], sharpening
        self._shape = (2,) if metric == "MicroF1" else (num_classes, num_classes)

    def _sound(self, announcement: Announcement) -> bool:
        own = announcement.auxiliary_data.get(VALIDATION)
        return super()._sound(announcement) and (own is None or self._counts(own))

    def _counts(self, counts: NDArray[np.int64]) -> bool:
        right, total = counts if counts.shape == (2,) else (0, 0)
        return counts.shape == self._shape and bool((counts >= 0).all() and right <= total)

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        weights = {}
        for silo, announcement in active.items():
            found = [each.tally[VALIDATION] for each in evaluations.get(silo, ()) if VALIDATION in each.tally]
            if (own := announcement.auxiliary_data.get(VALIDATION)) is not None:
                found.insert(0, own)
            tallies = bounded([counts for counts in found if self._counts(counts)])
            pooled = sum(tallies, np.zeros(self._shape, np.int64))
            weights[silo] = max(0.0, self._score(pooled)) ** self._sharpening
        return weights


def bounded(tallies: Sequence[Counts]) -> Sequence[Counts]:
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

"""(FL)^2's weights: silos whose images the received model is unsure of count more (methods reference, equation N10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.fact import Fact
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import CLASSIFICATION, Task
from anchorage.engine.aggregation.weigher import Announcements, BaseWeigher, Evaluations
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.slots import Weighting
from anchorage.transport.messages import Announcement

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.silo_round import SiloRound

DOUBT = "uncertainty"
"""Up, float64 [1]: one minus the received model's mean confidence on the silo's images."""


@piece("learningStatus")
class LearningStatus(Weighting):
    """Uncertainty of the received model on the silo's images ((FL)^2).

    One minus its mean confidence on the silo's images.
    """

    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION
    """The confidence is the probability of the one class that an image is most likely of."""

    def needs(self) -> Sequence[Need]:
        """Need pseudo-labels that see every image's prediction."""
        message = (
            "found learningStatus, which needs the received model's predictions; set pseudoLabels: {clientAdaptive: {}}"
        )
        return (Need(Fact.PREDICTIONS, message),)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return what leaves the silo."""
        meaning = "one minus the received model's mean confidence on the silo's images"
        return (AuxiliaryArray(DOUBT, "[1] float64", meaning, up=True),)

    def begin(self, silo_round: SiloRound) -> MeanDoubt:
        """Return what listens to the predictions."""
        return MeanDoubt()

    def weigher(self, task: Task) -> DoubtWeigher:
        """Return the weigher."""
        return DoubtWeigher()


class MeanDoubt(RoundPart):
    """One minus the mean confidence of a round: the mean of the differences, which float32 would not keep near 1."""

    resumes = True

    def __init__(self) -> None:
        self._announced: dict[str, NDArray[Any]] = {}

    def predicted(self, probabilities: Tensor) -> None:
        """Take the predictions of all images."""
        self._announced = {DOUBT: np.array([float((1 - probabilities.double().amax(1)).mean().clamp(0, 1))])}

    def auxiliary(self) -> Mapping[str, NDArray[Any]]:
        """Return what is announced."""
        return self._announced


class DoubtWeigher(BaseWeigher):
    """Weight is ``1 - tau``, 0 of a silo that tells none; where every silo's is 0, silos count alike."""

    def _sound(self, announcement: Announcement) -> bool:
        doubt = announcement.auxiliary_data.get(DOUBT)
        fits = doubt is None or (doubt.dtype == np.float64 and doubt.shape == (1,) and bool(0 <= doubt[0] <= 1))
        return super()._sound(announcement) and fits

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        doubts = {silo: announcement.auxiliary_data.get(DOUBT) for silo, announcement in active.items()}
        return {silo: 0.0 if doubt is None else float(doubt[0]) for silo, doubt in doubts.items()}

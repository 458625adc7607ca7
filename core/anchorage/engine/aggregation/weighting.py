"""Weighers: how much each silo's update counts, from what the silos announce and how they score each other (slot 10 of METHODS.md section 3)."""

import numpy as np
from numpy.typing import NDArray

from anchorage.api.method import Weighting
from anchorage.engine.aggregation.confusion import SCORES
from anchorage.engine.aggregation.shares import semianagg_code, semianagg_paper, two_halves
from anchorage.engine.aggregation.sub_consensus import SubConsensus
from anchorage.engine.aggregation.weigher import Announcements, BaseWeigher, Evaluations
from anchorage.transport.messages import Announcement


class Uniform(BaseWeigher):
    """Every update counts the same."""

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        return dict.fromkeys(active, 1.0)


class Count(BaseWeigher):
    """Weight is a count: images trained on (FedAvg, METHODS.md 6.1) or accepted pseudo-labels (METHODS.md 6.8, KAT-A12).

    Parameters
    ----------
    of : str
        Keys of `Announcement.samples`; more than one are added.
    """

    def __init__(self, *of: str) -> None:
        self._of = of

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        return {silo: float(sum(a.samples.get(of, 0) for of in self._of)) for silo, a in active.items()}


class FedAvgSemi(BaseWeigher):
    """Half of the weight by labelled images, half by accepted pseudo-labels (METHODS.md 6.9, KAT-B4, B5)."""

    barrier = True

    def __init__(self, labelled_share: float) -> None:
        self._labelled_share = labelled_share

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        halves = two_halves(_counts(active, "labelled"), _counts(active, "selected"), self._labelled_share)
        return dict(zip(active, halves.tolist(), strict=True))


class SemiAnAgg(BaseWeigher):
    """Half of the weight by labelled images, half by distance from the anchor model, class by class (METHODS.md 6.9, KAT-B1 to B6).

    Reads ``side["similarity"]``, float64 of shape [C]: mean cosine to the anchor model per pseudo-class, NaN where nothing was accepted.
    """

    barrier = True

    def __init__(self, order: str, labelled_share: float, num_classes: int) -> None:
        self._order = order
        self._labelled_share = labelled_share
        self._num_classes = num_classes

    def _sound(self, announcement: Announcement) -> bool:
        similarity = announcement.side.get("similarity")
        if similarity is None:
            return super()._sound(announcement) and announcement.samples.get("selected", 0) == 0
        in_range = similarity.shape == (self._num_classes,) and bool(
            np.all(np.isnan(similarity) | (np.abs(similarity) <= 1 + 1e-6))
        )
        return in_range and super()._sound(announcement)

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        unlabelled = [index for index, a in enumerate(active.values()) if "similarity" in a.side]
        similarity = [np.asarray(a.side["similarity"], np.float64) for a in active.values() if "similarity" in a.side]
        labelled = _counts(active, "labelled")
        shares = np.zeros(len(active))
        if unlabelled and (not labelled.any() or not np.isnan(similarity).all()):
            shares[unlabelled] = self._shares(np.array(similarity))
        return dict(zip(active, two_halves(labelled, shares, self._labelled_share).tolist(), strict=True))

    def _shares(self, similarity: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._order == "Code":  # negative cosines would give weights outside [0, 1] (KAT-B2)
            return semianagg_code(np.clip(similarity, 0.0, 1.0))
        return semianagg_paper(np.minimum(similarity, 1.0))


class ValidationScore(BaseWeigher):
    """Weight is the model's score on the validation images of all silos together: DVW (METHODS.md 6.14, KAT-E1 to E5).

    Pools every `Evaluation.confusion` of an update with the silo's own ``side["validation"]``; a score below 0 counts as 0.

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
        own = announcement.side.get("validation")
        return super()._sound(announcement) and (own is None or self._counts(own))

    def _counts(self, counts: NDArray[np.int64]) -> bool:
        return counts.shape == self._shape and bool((counts >= 0).all())

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        weights = {}
        for silo, announcement in active.items():
            pooled = np.zeros(self._shape, np.int64) + announcement.side.get("validation", 0)
            for evaluation in evaluations.get(silo, ()):
                if self._counts(evaluation.confusion):
                    pooled += evaluation.confusion
            weights[silo] = max(0.0, self._score(pooled)) ** self._sharpening
        return weights


def build_weigher(weighting: Weighting, num_classes: int) -> BaseWeigher:
    """Return the weigher that a method's slot asks for; `num_classes` is the width of the side channels."""
    share = float(weighting.labelled_share)
    match weighting.type:
        case "Uniform":
            return Uniform()
        case "SampleCount":
            return Count("train")
        case "StepCount":
            return Count("steps")
        case "SelectedCount":
            return Count("selected")
        case "UsedCount":
            return Count("labelled", "selected")
        case "FedAvgSemi":
            return FedAvgSemi(share)
        case "SemiAnAgg":
            return SemiAnAgg(weighting.order, share, num_classes)
        case "DVW":
            return ValidationScore(weighting.metric, num_classes, float(weighting.sharpening))
        case "SubConsensus":
            return SubConsensus(weighting)


def _counts(active: Announcements, name: str) -> NDArray[np.float64]:
    return np.array([a.samples.get(name, 0) for a in active.values()], np.float64)

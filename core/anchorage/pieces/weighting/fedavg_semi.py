"""FedAvg-Semi: a labelled and an unlabelled half of the weight (methods reference, 6.9)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.errors.documents import BARRIER_ASYNCHRONOUS
from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.weigher import Announcements, BaseWeigher, Evaluations, counts
from anchorage.pieces.slots import Weighting
from anchorage.pieces.weighting.selected_count import accepted_labels

Floats = NDArray[np.float64]


class TwoHalves(Weighting):
    """A weighting that gives a fixed share to labelled images; it normalises over all silos of a round."""

    labelled_share: Fraction = Field(
        "0.5",
        description="Share lambda 1 of the total weight that goes by labelled images; the rest goes by unlabelled images. Raise it, such "
        "as to 0.9, where pseudo-labels may be wrong.",
    )

    def needs(self) -> Sequence[Need]:
        """Need accepted pseudo-labels, and rounds whose silos are weighed together."""
        message = (
            f"found Asynchronous, but the weighting {self.name} normalises over all silos of a round "
            "(a barrier); set Synchronous, or another weighting"
        )
        rounds = Need(Fact.ROUNDS, message, failure=BARRIER_ASYNCHRONOUS, path=("spec", "protocol", "mode"))
        return (accepted_labels(self), rounds)


@piece("fedAvgSemi")
class FedAvgSemi(TwoHalves):
    """One part of the weight by labelled images, the other by accepted pseudo-labels (FedAvg-Semi)."""

    def weigher(self, task: Task) -> "FedAvgSemiWeigher":
        """Return the weigher."""
        return FedAvgSemiWeigher(float(self.labelled_share))


class FedAvgSemiWeigher(BaseWeigher):
    """Half of the weight by labelled images, half by accepted pseudo-labels (KAT-B4, B5)."""

    barrier = True

    def __init__(self, labelled_share: float) -> None:
        self._labelled_share = labelled_share

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        halves = two_halves(counts(active, "labelled"), counts(active, "selected"), self._labelled_share)
        return dict(zip(active, halves.tolist(), strict=True))


def normalised(values: Floats) -> Floats:
    """Divide by the sum; uniform where the sum is 0."""
    total = values.sum()
    return values / total if total else np.full(len(values), 1.0 / len(values))


def two_halves(labelled: Floats, unlabelled: Floats | None, labelled_share: float) -> Floats:
    """Give `labelled_share` to the silos by their labelled counts and the rest by `unlabelled`, both of shape [K].

    Without labelled images the unlabelled half carries everything; where `unlabelled` is None or all zero, the labelled one does (KAT-B4).
    All zero where neither counts.
    """
    if unlabelled is None or not unlabelled.any():
        return normalised(labelled) if labelled.any() else np.zeros(len(labelled))
    if not labelled.any():
        return normalised(unlabelled)
    return labelled_share * normalised(labelled) + (1.0 - labelled_share) * normalised(unlabelled)

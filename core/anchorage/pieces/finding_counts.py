"""How many labelled images of all silos have each finding, and do not have it, which silos tell and are told (several findings per image)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.piece import AuxiliaryArray
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.silo_counts import sum_silo_counts
from anchorage.transport.messages import Announcement, AuxiliaryData

if TYPE_CHECKING:
    from anchorage.learning.data.labels import Labels
    from anchorage.learning.silo_round import SiloRound

SILO_COUNTS, ALL = "finding_counts", "all_finding_counts"


def declare_arrays() -> Sequence[AuxiliaryArray]:
    """Return what travels beside the model for them."""
    return (
        AuxiliaryArray(ALL, "[2, L] int64", "labelled images of all silos without each finding, and with it"),
        AuxiliaryArray(
            SILO_COUNTS, "[2, L] int64", "the silo's labelled images without each finding, and with it", up=True
        ),
    )


def count_findings(labels: Labels) -> NDArray[np.int64]:
    """Count the images of [n, L] without each finding, and with it, int64 [2, L]; what is uncertain or unknown is neither."""
    return np.stack([(labels == 0).sum(0), (labels == 1).sum(0)]).astype(np.int64)


class FindingCounts(RoundPart):
    """Tells the counts of the silo's labelled images."""

    resumes = True

    def __init__(self, silo_round: SiloRound) -> None:
        images = silo_round.images
        self._counts = count_findings(images.labels[images.labelled])

    def auxiliary(self) -> AuxiliaryData:
        """Return ``finding_counts``, int64 [2, L]."""
        return {SILO_COUNTS: self._counts}


class LabelledFindings(RoundMemory):
    """Counts of the last round in which a silo had labels.

    Reads ``auxiliary_data["finding_counts"]``, int64 of shape [2, L]. Sends ``all_finding_counts``, int64 [2, L]; before the first counts zeros.

    Parameters
    ----------
    labels : int
        Findings L.
    """

    def __init__(self, labels: int) -> None:
        self._counts = np.zeros((2, labels), np.int64)

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the counts of this round; those of another shape or dtype, or negative ones, are left out."""
        counts = sum_silo_counts(announcements, SILO_COUNTS, self._counts.shape)
        if counts.any():
            self._counts = counts

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return the counts, the same for every silo."""
        return {ALL: self._counts}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts."""
        return {"counts": self._counts}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take counts that `state` returned."""
        self._counts = state["counts"].astype(np.int64)

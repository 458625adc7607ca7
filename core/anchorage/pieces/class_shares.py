"""The class shares of all silos' labelled images, which silos tell and are told (methods reference, 6.12)."""

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
    from anchorage.learning.silo_round import SiloRound


def declare_arrays() -> Sequence[AuxiliaryArray]:
    """Return what travels beside the model for them."""
    return (
        AuxiliaryArray("prior", "[C] float64", "class shares of all silos' labelled or counted images"),
        AuxiliaryArray(
            "label_counts",
            "[C] int64",
            "the silo's images per class, as its records count them, else the labelled ones",
            up=True,
        ),
    )


class LabelCounts(RoundPart):
    """Tells the silo's images per class: those that its records count, else the labelled ones."""

    resumes = True

    def __init__(self, silo_round: SiloRound) -> None:
        images = silo_round.images
        known = np.bincount(images.labels[images.labelled], minlength=silo_round.run.model.num_outputs)
        self._counts = known if images.stated_counts is None else images.stated_counts

    def auxiliary(self) -> AuxiliaryData:
        """Return ``label_counts``, int64 [C]."""
        return {"label_counts": self._counts}


class LabelledPrior(RoundMemory):
    """Class shares of the labels of the last round that had any.

    Reads ``auxiliary_data["label_counts"]``, int64 of shape [C]. Sends ``prior``, float64 [C]; before the first counts every class has the
    same share.

    Parameters
    ----------
    num_classes : int
        Classes C.
    """

    def __init__(self, num_classes: int) -> None:
        self._counts = np.ones(num_classes, np.int64)

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the counts of this round; those of another shape or dtype, or negative ones, are left out."""
        counts = sum_silo_counts(announcements, "label_counts", self._counts.shape)
        if counts.any():
            self._counts = counts

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return the shares, the same for every silo."""
        return {"prior": self._counts / self._counts.sum()}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts."""
        return {"counts": self._counts}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take counts that `state` returned."""
        self._counts = state["counts"].astype(np.int64)

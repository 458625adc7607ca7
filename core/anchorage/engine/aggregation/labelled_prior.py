"""The federation's share of labelled images per class: what "orig-ACR" silos are told (METHODS.md 6.12)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.transport.messages import Announcement, SideChannel


class LabelledPrior(RoundMemory):
    """Class shares of the labels of the last round that had any.

    Reads ``side["label_counts"]``, int64 of shape [C]. Sends ``prior``, float64 [C]; before the first counts every class has the same share.

    Parameters
    ----------
    num_classes : int
        Classes C.
    """

    def __init__(self, num_classes: int) -> None:
        self._counts = np.ones(num_classes, np.int64)

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the counts of this round; those of another shape or dtype, or negative ones, are left out."""
        counts = np.zeros_like(self._counts)
        for announcement in announcements.values():
            told = announcement.side.get("label_counts")
            if told is not None and told.dtype == np.int64 and told.shape == counts.shape and (told >= 0).all():
                counts += told
        if counts.any():
            self._counts = counts

    def side_channel(self, silo: str = "") -> SideChannel:
        """Return the shares, the same for every silo."""
        return {"prior": self._counts / self._counts.sum()}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts."""
        return {"counts": self._counts}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take counts that `state` returned."""
        self._counts = state["counts"].astype(np.int64)

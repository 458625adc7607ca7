"""What the server remembers of a round's announcements and sends down with the next round's model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.method import PseudoLabels, ResolvedMethod
from anchorage.engine.aggregation.clusters import GlobalCentroids
from anchorage.engine.aggregation.counted_updates import CountedUpdates
from anchorage.engine.aggregation.helper_models import HelperModels
from anchorage.engine.aggregation.labelled_prior import LabelledPrior
from anchorage.engine.aggregation.mean_images import POOLED, MeanImages
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.transport.messages import Announcement, SideChannel


def build_memory(method: ResolvedMethod, num_classes: int, seed: int = 0) -> RoundMemory | None:
    """Return the memory that a method needs, None where it needs none; `seed` is the run's."""
    if method.self_supervised.type == "Clusters":
        return GlobalCentroids(seed)
    if method.regulariser.type == "ControlVariates":
        return CountedUpdates()
    if method.input_mixing.type in POOLED:
        return MeanImages(method.input_mixing, num_classes)
    if method.pseudo_labels.type == "Helpers":
        return HelperModels(method, num_classes)
    if method.pseudo_labels.adjustment == "Labelled":
        return LabelledPrior(num_classes)
    return ClassThresholds(method.pseudo_labels, num_classes) if method.pseudo_labels.type == "ClassAdaptive" else None


class ClassThresholds(RoundMemory):
    """CBAFed's thresholds per class, from how often every class was used in the round before (METHODS.md 6.11, KAT-D1).

    Reads ``side["counts"]``, int64 of shape [C]: a silo's labelled and accepted images per class. Sends ``thresholds``, float64 [C], and
    ``rare``, uint8 [C]. Before the first counts every class has the same share.

    Parameters
    ----------
    pseudo_labels : PseudoLabels
        Threshold (base), ceiling, and the share below which a class is rare.
    num_classes : int
        Classes C.
    """

    def __init__(self, pseudo_labels: PseudoLabels, num_classes: int) -> None:
        self._base, self._ceiling = float(pseudo_labels.threshold), float(pseudo_labels.ceiling)
        self._rare_below = float(pseudo_labels.rare_below)
        self._counts = np.zeros(num_classes, np.int64)

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the counts of this round; those of another shape or dtype, or negative ones, are left out."""
        counts = np.zeros_like(self._counts)
        for announcement in announcements.values():
            told = announcement.side.get("counts")
            if told is not None and told.dtype == np.int64 and told.shape == counts.shape and (told >= 0).all():
                counts += told
        self._counts = counts

    def side_channel(self, silo: str = "") -> SideChannel:
        """Return the thresholds and which classes are rare, the same for every silo."""
        share = scaled_shares(self._counts)
        return {
            "thresholds": class_thresholds(share, self._base, self._ceiling),
            "rare": (share < self._rare_below).astype(np.uint8),
        }

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts."""
        return {"counts": self._counts}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take counts that `state` returned."""
        self._counts = state["counts"].astype(np.int64)


def scaled_shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each class's share of the counts times C/10, float64 [C]: 0.1 is average whatever C is; 0.1 everywhere without any count."""
    total = counts.sum()
    if total == 0:
        return np.full(len(counts), 0.1)
    scaled: NDArray[np.float64] = counts / total * (len(counts) / 10)
    return scaled


def class_thresholds(share: NDArray[np.float64], base: float, ceiling: float) -> NDArray[np.float64]:
    """Return ``min(share + base - std(share), ceiling)``, float64 [C]; the deviation is the sample's, ddof = 1 (METHODS.md 12, number 16)."""
    thresholds: NDArray[np.float64] = np.minimum(share + base - share.std(ddof=1), ceiling)
    return thresholds

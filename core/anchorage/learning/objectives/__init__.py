"""A silo's local objectives (METHODS.md section 3, slots 4 to 8): each module turns a round into its losses."""

from collections.abc import Callable, Mapping

from anchorage.learning.local_work import RoundWork, Work
from anchorage.learning.objectives.class_adaptive import by_class_thresholds
from anchorage.learning.objectives.consistency import by_consistency
from anchorage.learning.objectives.fixed_labels import by_fixed_labels
from anchorage.learning.objectives.flexmatch import by_flexmatch
from anchorage.learning.objectives.supervised import supervised

__all__ = ["prepare"]

LABELS_FIXED: Mapping[str, Callable[[RoundWork], Work]] = {
    "AnchorSimilarity": by_fixed_labels,
    "ReceivedModel": by_fixed_labels,
}
"""Pseudo-labels that take no notice of the silo's own labels."""

BESIDE_LABELS: Mapping[str, Callable[[RoundWork], Work]] = {
    "FlexMatch": by_flexmatch,
    "FixMatch": by_consistency,
    "UDA": by_consistency,
    "ClassAdaptive": by_class_thresholds,
}
"""Pseudo-labels for the images without a label; a silo that has none of these is plainly supervised."""


def prepare(work: RoundWork) -> Work:
    """Return the method's work for this round's images."""
    kind = work.run.method.pseudo_labels.type
    if kind in LABELS_FIXED:
        return LABELS_FIXED[kind](work)
    if kind in BESIDE_LABELS and len(work.images.unlabelled):
        return BESIDE_LABELS[kind](work)
    return supervised(work)

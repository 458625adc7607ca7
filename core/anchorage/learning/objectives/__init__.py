"""A silo's local objectives (METHODS.md section 3, slots 4 to 8): each module turns a round into its losses."""

from collections.abc import Callable, Mapping

from anchorage.learning.local_work import RoundWork, Work
from anchorage.learning.objectives.barlow import by_redundancy
from anchorage.learning.objectives.byol import by_byol
from anchorage.learning.objectives.class_adaptive import by_class_thresholds
from anchorage.learning.objectives.clusters import by_clusters
from anchorage.learning.objectives.consistency import by_consistency
from anchorage.learning.objectives.fixed_labels import by_fixed_labels
from anchorage.learning.objectives.flexmatch import by_flexmatch
from anchorage.learning.objectives.helpers import by_helpers
from anchorage.learning.objectives.input_mixing import by_input_mixing
from anchorage.learning.objectives.mean_teacher import by_mean_teacher
from anchorage.learning.objectives.supervised import supervised
from anchorage.learning.objectives.two_heads import by_two_heads

__all__ = ["prepare"]

WITHOUT_LABELS: Mapping[str, Callable[[RoundWork], Work]] = {
    "Byol": by_byol,
    "Barlow": by_redundancy,
    "Clusters": by_clusters,
}
"""Losses of all images, labelled or not, that take no label."""

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
    "MeanTeacher": by_mean_teacher,
}
"""Pseudo-labels for the images without a label; a silo that has none of these is plainly supervised."""


def prepare(work: RoundWork) -> Work:
    """Return the method's work for this round's images."""
    self_supervised = work.run.method.self_supervised.type
    if self_supervised in WITHOUT_LABELS:
        return WITHOUT_LABELS[self_supervised](work)
    if work.run.method.input_mixing.type != "None":
        return by_input_mixing(work)
    kind = work.run.method.pseudo_labels.type
    if kind in LABELS_FIXED:
        return LABELS_FIXED[kind](work)
    if kind == "Helpers":
        return by_helpers(work)
    if work.run.method.heads.second == "Balanced" and len(work.images.unlabelled):
        return by_two_heads(work)
    if kind in BESIDE_LABELS and len(work.images.unlabelled):
        return BESIDE_LABELS[kind](work)
    return supervised(work)

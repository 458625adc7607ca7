"""Classifiers in closed form on a frozen encoder: GH-OFL, FedCGS and ridge regression (newer methods reference, N3)."""

from anchorage.methods.preset import Preset, slots
from anchorage.pieces.server_training.moments import ClassMoments

MOMENTS_HEAD = Preset(
    slots=slots("MomentsHead", server_training=ClassMoments()),
    summary="Silos send sums of frozen features per class, once; the server computes the classifier from them, without training.",
    setting="labels anywhere: at silos, at some, in part, or at the server only (head: Total)",
    labels=("All", "Partial"),
    reveals_to_server="each silo's class histogram, the sums of its features per class and the products of two features: of a class of fewer than "
    "minimumCount images nothing",
    reveals_to_silos="the classifier made of all silos' sums",
    source="GH-OFL and FedCGS, as read in their public code, and ridge regression; newer methods reference, N3, equations N12 to N23",
)

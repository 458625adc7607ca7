"""How the weight of a round is shared between silos, from counts and similarities (METHODS.md 6.9). Arrays of shape [K] or [K, C], float64."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def remoteness(similarity: Floats) -> Floats:
    """Return r = 1 - w per silo and class, 0 where the class is absent (w is NaN)."""
    remote: Floats = np.where(np.isnan(similarity), 0.0, 1.0 - similarity)
    return remote


def share_per_class(values: Floats) -> Floats:
    """Divide each class (column) by its sum over the silos; a class whose sum is 0 stays 0."""
    sums = values.sum(0)
    shares: Floats = np.divide(values, sums, out=np.zeros_like(values), where=sums != 0)
    return shares


def normalised(values: Floats) -> Floats:
    """Divide by the sum; uniform where the sum is 0."""
    total = values.sum()
    return values / total if total else np.full(len(values), 1.0 / len(values))


def semianagg_paper(similarity: Floats) -> Floats:
    """SemiAnAgg's weights in the paper's order: 1 - w first, then each class over the silos, then the sum over classes."""
    return normalised(share_per_class(remoteness(similarity)).sum(1))


def similarity_share(similarity: Floats) -> Floats:
    """Divide each class by its sum over the silos, absent entries counting as 1; uniform where the sum is 0."""
    filled = np.where(np.isnan(similarity), 1.0, similarity)
    sums = filled.sum(0)
    shares: Floats = np.divide(filled, sums, out=np.full_like(filled, 1.0 / len(filled)), where=sums != 0)
    return shares


def semianagg_code(similarity: Floats) -> Floats:
    """SemiAnAgg's weights in the published code's order: each class over the silos first, then 1 - that, then the sum over classes.

    Nearly uniform: between 0 and 1 / (K - 1) where no similarity is negative.
    """
    return normalised((1.0 - similarity_share(similarity)).sum(1))


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

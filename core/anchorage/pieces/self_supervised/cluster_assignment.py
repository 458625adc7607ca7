"""Orchestra's clustering: equal-sized local clusters at a silo, global centroids of all silos' at the server (methods reference, 6.13).

Everything is computed by torch, which is loaded where it is called: in one thread, so that the same clusters come out in every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.learning.randomness import generator
from anchorage.transport.messages import Announcement, AuxiliaryData

if TYPE_CHECKING:
    from torch import Tensor

GLOBAL_CENTROIDS = 128
LOCAL_CENTROIDS = 16
TEMPERATURE = 0.1
"""Divides the similarities to the global centroids."""
SHARPNESS = 25.0
"""Lambda of the balanced assignment (KAT-S1)."""
LOCAL_PASSES = 5
GLOBAL_STEPS = 500
_RATE, _MOMENTUM, _DECAY = 0.01, 0.9, 0.0001
_TINY = 1e-300


def balanced_assignment(
    similarity: Tensor, *, sharpness: float = SHARPNESS, tolerance: float = 0.01, iterations: int = 100
) -> Tensor:
    """Assign samples to centroids so that every centroid gets the same share: Sinkhorn and Knopp (KAT-S1).

    Parameters
    ----------
    similarity : Tensor of float64, shape [n, k]
        Of samples to centroids.
    sharpness : float
        Factor of the similarities inside the exponential.
    tolerance : float
        It stops when no sample's factor changes by more than this share.
    iterations : int
        At most so many.

    Returns
    -------
    Tensor of float64, shape [n, k]
        Rows sum to 1, columns to about n / k.
    """
    kernel = (sharpness * (similarity - similarity.amax(1, keepdim=True))).exp()
    samples, centroids = kernel.shape
    of_samples, of_centroids = kernel.new_full((samples,), 1 / samples), kernel.new_ones(centroids)
    for _ in range(iterations):
        of_centroids = 1 / centroids / (of_samples @ kernel).clamp(min=_TINY)
        before, of_samples = of_samples, 1 / samples / (kernel @ of_centroids).clamp(min=_TINY)
        if float((before / of_samples - 1).abs().amax()) < tolerance:
            break
    return samples * of_samples[:, None] * kernel * of_centroids


def local_centroids(features: Tensor, rng: np.random.Generator) -> Tensor:
    """Return unit centroids of equal-sized clusters, float64 [up to 16, d].

    Parameters
    ----------
    features : Tensor of float64, shape [n, d]
        Of unit length, at least one.
    rng : Generator
        Draws the first centroids, and a sample for a cluster that lost its own.
    """
    count = min(LOCAL_CENTROIDS, len(features))
    centroids = features[rng.choice(len(features), count, replace=False).tolist()]
    for _ in range(LOCAL_PASSES):
        cluster = balanced_assignment(features @ centroids.T, iterations=10).argmax(1)
        for index in range(count):
            cluster_rows = features[cluster == index]
            centroids[index] = cluster_rows.mean(0) if len(cluster_rows) else features[int(rng.integers(len(features)))]
        centroids = _unit_rows(centroids)
    return centroids


def global_centroids(start: Tensor, pooled: Tensor, steps: int = GLOBAL_STEPS) -> Tensor:
    """Fit centroids to the silos' pooled ones: gradient steps on the cosine of soft and balanced assignments.

    Parameters
    ----------
    start : Tensor of float64, shape [k, d]
        Unit rows.
    pooled : Tensor of float64, shape [n, d]
        Unit rows, at least one.
    steps : int
        How many.

    Returns
    -------
    Tensor of float64, shape [k, d]
        Unit rows.
    """
    centroids, velocity = start, start.new_zeros(start.shape)
    for _ in range(steps):
        velocity = _MOMENTUM * velocity + assignment_gradient(centroids, pooled) + _DECAY * centroids
        centroids = _unit_rows(centroids - _RATE * velocity)
    return centroids


def assignment_gradient(centroids: Tensor, pooled: Tensor) -> Tensor:
    """Return the gradient by the centroids, float64 [k, d], of the mean of minus the cosine between the balanced and the soft assignment."""
    similarity = pooled @ centroids.T
    target = balanced_assignment(similarity)
    soft = (similarity / TEMPERATURE).softmax(1)
    lengths = target.norm(dim=1, keepdim=True) * soft.norm(dim=1, keepdim=True)
    cosine = (target * soft).sum(1, keepdim=True) / lengths
    by_soft = cosine * soft / soft.square().sum(1, keepdim=True) - target / lengths
    by_similarity = soft * (by_soft - (by_soft * soft).sum(1, keepdim=True)) / TEMPERATURE
    gradient: Tensor = by_similarity.T @ pooled / len(pooled)
    return gradient


def _unit_rows(rows: Tensor) -> Tensor:
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return unit


class GlobalCentroids(RoundMemory):
    """Orchestra's memory: reads ``auxiliary_data["local_centroids"]``, float32 [up to 16, d], and sends ``centroids``, float32 [128, d].

    Nothing is sent before the first local centroids: then silos only cluster.

    Parameters
    ----------
    seed : int
        The run's seed, for the first centroids.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._centroids: NDArray[np.float64] | None = None

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Fit the centroids to those of this round; local ones of another shape, or not finite, are left out."""
        silo_centroids = [
            a.auxiliary_data["local_centroids"] for a in announcements.values() if "local_centroids" in a.auxiliary_data
        ]
        sound = [
            rows for rows in silo_centroids if rows.dtype == np.float32 and rows.ndim == 2 and np.isfinite(rows).all()
        ]
        sound = [rows for rows in sound if 0 < len(rows) <= LOCAL_CENTROIDS]
        widths = [rows.shape[1] for rows in (*([] if self._centroids is None else [self._centroids]), *sound)]
        if alike := [rows for rows in sound if rows.shape[1] == widths[0]]:
            self._fit(alike)

    def _fit(self, local: list[NDArray[np.float32]]) -> None:
        import torch

        torch.set_num_threads(1)
        pooled = _unit_rows(torch.from_numpy(np.concatenate(local).astype(np.float64)))
        start = self._centroids
        if start is None:
            shape = (GLOBAL_CENTROIDS, pooled.shape[1])
            start = _unit_rows(
                torch.from_numpy(generator(self._seed, "global-centroids").standard_normal(shape))
            ).numpy()
        self._centroids = global_centroids(torch.from_numpy(start), pooled).numpy()

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return the centroids, the same for every silo, where there are some."""
        return {} if self._centroids is None else {"centroids": self._centroids.astype(np.float32)}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the centroids, float64."""
        return {} if self._centroids is None else {"centroids": self._centroids}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take centroids that `state` returned."""
        self._centroids = state["centroids"].astype(np.float64)

"""Distances between the borders of two masks: Hausdorff distance and surface Dice."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Distances = NDArray[np.float64]


def border_distances(truth: Mask, predicted: Mask, spacing: Sequence[float]) -> tuple[Distances, Distances]:
    """Return how far each border element of one mask is from the other's border, of both masks; neither mask is empty.

    The border of a mask is what an erosion by its direct neighbours takes away; beyond the image there is background.

    Parameters
    ----------
    truth, predicted : ndarray of bool, shape [h, w] or [d, h, w]
        Masks.
    spacing : sequence of float
        Distance of neighbouring elements along each axis, such as in mm.
    """
    from scipy import ndimage

    (box,) = ndimage.find_objects((truth | predicted).astype(np.uint8))
    borders = [np.argwhere(mask & ~ndimage.binary_erosion(mask)) for mask in (truth[box], predicted[box])]
    return _distances(borders[0], borders[1], spacing), _distances(borders[1], borders[0], spacing)


def _distances(places: NDArray[np.intp], others: NDArray[np.intp], spacing: Sequence[float]) -> Distances:
    """Return how far each place [n, axes] is from the nearest of the others: by a tree, for a border is much smaller than its image."""
    from scipy.spatial import cKDTree

    scale = np.array(spacing, np.float64)
    _, nearest = cKDTree(others * scale).query(places * scale)
    apart: Distances = np.sqrt(
        (((places - others[nearest]) * scale) ** 2).sum(1)
    )  # of whole steps: exact at a tolerance
    return apart


def hausdorff_95(distances: tuple[Distances, Distances]) -> float:
    """Return the greater of both 95th percentiles of `border_distances`."""
    return float(max(np.percentile(one, 95) for one in distances))


def surface_dice(distances: tuple[Distances, Distances], tolerance: float) -> float:
    """Return the share of both borders that lies within the tolerance of the other (normalised surface Dice; Nikolov et al. 2021)."""
    within = sum(int((one <= tolerance).sum()) for one in distances)
    return within / sum(len(one) for one in distances)

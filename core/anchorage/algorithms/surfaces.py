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

    borders = [mask & ~ndimage.binary_erosion(mask) for mask in (truth, predicted)]
    to_other = [ndimage.distance_transform_edt(~border, sampling=spacing) for border in borders]
    return to_other[1][borders[0]], to_other[0][borders[1]]


def hausdorff_95(distances: tuple[Distances, Distances]) -> float:
    """Return the greater of both 95th percentiles of `border_distances`."""
    return float(max(np.percentile(one, 95) for one in distances))


def surface_dice(distances: tuple[Distances, Distances], tolerance: float) -> float:
    """Return the share of both borders that lies within the tolerance of the other (normalised surface Dice; Nikolov et al. 2021)."""
    within = sum(int((one <= tolerance).sum()) for one in distances)
    return within / sum(len(one) for one in distances)

"""Counts that silos tell beside their updates, summed."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.messages import Announcement


def sum_silo_counts(announcements: Mapping[str, Announcement], name: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the sum of the silos' arrays of a name; those of another shape or dtype, or with negative counts, are left out.

    Parameters
    ----------
    announcements : mapping of str to Announcement
        What the silos of a round announced.
    name : str
        Name of the array among the auxiliary data.
    shape : tuple of int
        Its shape; int64.
    """
    total = np.zeros(shape, np.int64)
    for announcement in announcements.values():
        counts = announcement.auxiliary_data.get(name)
        if counts is not None and counts.dtype == np.int64 and counts.shape == shape and (counts >= 0).all():
            total += counts
    return total

"""Predicted maps on the grids of the images' files, beside the masks as their files have them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorage.api.model import VolumeSpec
from anchorage.learning.data.cases import read_original_mask
from anchorage.learning.data.decoding import Fit, RefusedImageError, unfit_mask
from anchorage.learning.data.grids import on_own_grid, respace
from anchorage.learning.data.listed_images import without_warnings
from anchorage.learning.data.masks import Masks
from anchorage.learning.model_hooks import TaskHooks

PIXELS = (1.0, 1.0)
"""Distances of neighbouring pixels of an image, in pixels."""


@dataclass(frozen=True, eq=False, slots=True)
class OriginalMasks:
    """Masks of images, each read when it is compared with a prediction.

    Parameters
    ----------
    masks : Masks
        Their files; every image has one.
    fit : str
        How a flat image becomes square for the network.
    """

    masks: Masks
    fit: Fit

    def compare(self, task: TaskHooks, row: int, predicted: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Compare the map that was predicted for an image, uint8 [side, side], with its mask, distances in pixels of the image.

        The prediction takes the nearest pixel, as in a file that is written of it; of what was cut off nothing is predicted.

        Returns
        -------
        ndarray of float64, shape [1, ...]
            What `TaskHooks.compared` gives.

        Raises
        ------
        RefusedImageError
            The mask cannot be read any more.
        """
        truth = self.masks.original(row)
        own_map = unfit_mask(predicted, (truth.shape[1], truth.shape[0]), self.fit)
        return task.compared(truth[None], own_map[None], PIXELS)

    def compare_volume(
        self, task: TaskHooks, row: int, predicted: NDArray[np.uint8], volume: VolumeSpec
    ) -> NDArray[np.float64]:
        """Do what `compare` does for a volume of a model, uint8 [x, y, z] on its grid, with distances in mm."""
        file = self.masks.files[row]
        if file is None:
            raise RefusedImageError("MaskMissing", "no mask")
        with without_warnings():
            truth, grid = read_original_mask(file, self.masks.table, self.masks.classes, volume.orientation)
        model_grid = respace(grid, volume.millimetres)
        if model_grid.shape != predicted.shape:
            raise RefusedImageError("MaskDiffers", "another mask than before")
        return task.compared(truth[None], on_own_grid(predicted, model_grid, grid)[None], grid.spacing)

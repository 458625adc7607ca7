"""What a trained model says of whole volumes, on their own grids."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.learning.data.augmentation import levels
from anchorage.learning.data.cases import case_of
from anchorage.learning.data.decoders import shades_of
from anchorage.learning.data.grids import Grid, on_own_grid
from anchorage.learning.data.listed_images import without_warnings
from anchorage.learning.data.sources import Channels, Series
from anchorage.learning.data.volumes import box_of
from anchorage.learning.inference import ImageModel
from anchorage.learning.sliding_window import sliding_logits


@dataclass(frozen=True, eq=False, slots=True)
class PredictedVolume:
    """The classes of a volume's voxels."""

    classes: NDArray[np.uint8]
    """On the grid of the file, uint8 [i, j, k]."""
    grid: Grid
    """That grid."""
    millilitres: Sequence[float]
    """Volume of each class, background first."""


def predict_volume(model: ImageModel, source: Path | Series | Channels) -> PredictedVolume:
    """Predict a volume.

    Parameters
    ----------
    model : ImageModel
        Of volumes.
    source : Path, Series or Channels
        A NIfTI file, the files of a DICOM series, or such for each channel.

    Raises
    ------
    RefusedImageError
        It cannot be used.
    AnchorageError
        The model's outputs are not finite.
    """
    described = model.described
    volume = described.volume
    assert volume is not None, "the model is of volumes"
    no_classes = np.zeros(1 << 16, np.uint8)
    with without_warnings():
        case = case_of(
            source,
            None,
            described.channels,
            volume.millimetres,
            shades_of(described),
            no_classes,
            described.outputs,
            volume.nan_voxels,
            volume.orientation,
        )
    darkest = int(case.values.min())

    def patch_at(start: tuple[int, int, int]) -> Tensor:
        patch = box_of(case.values, start, volume.voxels, darkest)
        return model.views(levels(torch.from_numpy(patch))[None])[0]

    class_volume = np.empty(case.values.shape[1:], np.uint8)
    place = 0
    for planes in sliding_logits(model.network, patch_at, class_volume.shape, volume.voxels, float(volume.overlap)):
        if not bool(planes.isfinite().all()):
            raise AnchorageError(LOSS_NOT_FINITE, "the model's outputs are not finite")
        class_volume[place : place + planes.shape[1]] = model.task.maps(planes[None])[0].numpy()
        place += planes.shape[1]
    classes = on_own_grid(class_volume, case.model_grid, case.grid)
    of_voxel = abs(float(np.linalg.det(case.grid.affine[:3, :3]))) / 1000
    counts = np.bincount(classes.ravel(order="K"), minlength=len(described.outputs))
    return PredictedVolume(classes, case.grid, [float(count) * of_voxel for count in counts])

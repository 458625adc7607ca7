"""Scores of networks that give maps: images go through in batches whose maps fit into memory, and only what the task scores by is kept."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.data.labels import Labels
from anchorage.learning.model_hooks import TaskHooks
from anchorage.learning.network import Network
from anchorage.learning.original_masks import PIXELS, OriginalMasks
from anchorage.learning.views import EVALUATION_BATCH, Views
from anchorage.learning.volume_views import VolumeViews

_PIXELS = 1 << 20
"""Of a batch, each with an output for each class."""


def scored_maps(
    network: Network,
    views: Views,
    task: TaskHooks,
    indices: NDArray[np.int64],
    labels: Labels,
    *,
    in_full: bool = False,
    originals: OriginalMasks | None = None,
) -> tuple[NDArray[np.float64], float, bool]:
    """Return what a task scores a network in eval mode by, of images as they are.

    Parameters
    ----------
    network : Network
        Gives maps.
    views : Views
        All images of a party.
    task : TaskHooks
        The task.
    indices : ndarray of int64, shape [n]
        Which images.
    labels : ndarray, shape [n, ...]
        Their labels.
    in_full : bool
        Whether for an assessment.
    originals : OriginalMasks, optional
        Of all images: maps are compared with them on the grids of the images' files; else with the labels on the network's.

    Returns
    -------
    compared : ndarray of float64, shape [n, ...]
        Joined results of `TaskHooks.compared`.
    loss : float
        The task's loss, the mean over the images of that of their batches; 0 of no image.
    finite : bool
        Whether all outputs are.

    Raises
    ------
    RefusedImageError
        An original mask cannot be read any more.
    """
    if isinstance(views, VolumeViews):
        return _scored_volumes(network, views, task, indices, originals, in_full=in_full)
    size = max(1, min(EVALUATION_BATCH, _PIXELS // max(1, labels[:1].size)))
    spacing = PIXELS if in_full else None
    compared = [task.compared(labels[:0], labels[:0], spacing)]
    total, finite = 0.0, True
    with torch.no_grad():
        for start in range(0, len(indices), size):
            logits: Tensor = network(views.plain(views.to_device(indices[start : start + size])))
            batch_labels = labels[start : start + size]
            total += float(task.loss(logits.double(), views.to_device(batch_labels))) * len(batch_labels)
            finite = finite and bool(logits.isfinite().all())
            maps = task.maps(logits).cpu().numpy()
            if originals is None:
                compared.append(task.compared(batch_labels, maps, spacing))
            else:
                rows = indices[start : start + size].tolist()
                compared += [originals.compare(task, row, each) for row, each in zip(rows, maps, strict=True)]
    return np.concatenate(compared), total / max(1, len(indices)), finite


def _scored_volumes(
    network: Network,
    views: VolumeViews,
    task: TaskHooks,
    indices: NDArray[np.int64],
    originals: OriginalMasks | None,
    *,
    in_full: bool,
) -> tuple[NDArray[np.float64], float, bool]:
    """Do what `scored_maps` does for whole volumes, one after another, whose masks lie with them."""
    spacing = views.volume.millimetres if in_full else None
    none = np.empty((0, 1, 1, 1), np.uint8)
    compared, total, finite = [task.compared(none, none, spacing)], 0.0, True
    for index in indices.tolist():
        truth, predicted, loss, all_finite = _predict(network, views, task, index)
        total, finite = total + loss, finite and all_finite
        if originals is None:
            compared.append(task.compared(truth[None], predicted[None], spacing))
        else:
            compared.append(originals.compare_volume(task, index, predicted, views.volume))
    return np.concatenate(compared), total / max(1, len(indices)), finite


def _predict(
    network: Network, views: VolumeViews, task: TaskHooks, index: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], float, bool]:
    """Return the true and the predicted map of a whole volume, uint8 [x, y, z] each, the task's loss, and whether all outputs are finite."""
    truth, loss, finite = views.case(index).mask(), task.map_loss(), True
    predicted = np.empty_like(truth)
    for planes, logits in views.logits(network, index):
        loss.add(logits.double(), torch.from_numpy(truth[None, planes]).to(logits.device))
        finite = finite and bool(logits.isfinite().all())
        predicted[planes] = task.maps(logits)[0].cpu().numpy()
    return truth, predicted, loss.value(), finite


@dataclass(frozen=True, eq=False, slots=True)
class Shown:
    """Images beside their true and predicted maps."""

    pixels: NDArray[np.uint8]
    """The images [k, channels, H, W]."""
    labels: NDArray[np.uint8]
    """True maps [k, H, W]."""
    maps: NDArray[np.uint8]
    """Predicted maps [k, H, W]."""
    finite: bool
    """Whether all outputs are."""


def shown_maps(
    network: Network, views: Views, task: TaskHooks, indices: NDArray[np.int64], labels: NDArray[np.uint8]
) -> Shown:
    """Return some images with maps; of a volume the slice with the most foreground, as a radiologist sees it. Parameters as of `scored_maps`."""
    if isinstance(views, VolumeViews):
        return _shown_volumes(network, views, task, indices)
    rows = views.to_device(indices)
    with torch.no_grad():
        logits: Tensor = network(views.plain(rows))
    shades = np.rint(views.fractions(rows).cpu().numpy() * 255).astype(np.uint8)
    return Shown(shades, labels, task.maps(logits).cpu().numpy(), bool(logits.isfinite().all()))


def _shown_volumes(network: Network, views: VolumeViews, task: TaskHooks, indices: NDArray[np.int64]) -> Shown:
    planes: list[tuple[NDArray[np.uint8], ...]] = []
    finite = True
    for index in indices.tolist():
        truth, predicted, _, all_finite = _predict(network, views, task, index)
        finite = finite and all_finite
        height = int((((truth > 0) & (truth != UNKNOWN_PIXEL)).sum((0, 1))).argmax())
        values = views.case(index).patch((0, 0, height), (*truth.shape[:2], 1))[0][..., 0]
        shades = np.rint(values / 65535 * 255).astype(np.uint8)
        planes.append((_upright(shades), _upright(truth[None, :, :, height]), _upright(predicted[None, :, :, height])))
    sides = tuple(np.max([shades.shape[1:] for shades, _, _ in planes], axis=0))
    fills = (0, UNKNOWN_PIXEL, 0)
    pixels, truths, maps = (
        np.stack([_frame(plane, sides, fill) for plane in of])
        for of, fill in zip(zip(*planes, strict=True), fills, strict=True)
    )
    return Shown(pixels, truths[:, 0], maps[:, 0], finite)


def _upright(plane: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a slice [c, x, y], to the right and to the front, with the patient's right on the left and the front on top, [c, rows, columns]."""
    return plane[:, ::-1, ::-1].transpose(0, 2, 1)


def _frame(plane: NDArray[np.uint8], sides: tuple[int, ...], fill: int) -> NDArray[np.uint8]:
    """Return a slice [c, rows, columns] in the middle of a frame."""
    framed = np.full((len(plane), *sides), fill, np.uint8)
    top, x_start = ((full_side - plane_side) // 2 for full_side, plane_side in zip(sides, plane.shape[1:], strict=True))
    framed[:, top : top + plane.shape[1], x_start : x_start + plane.shape[2]] = plane
    return framed

"""Grad-CAM (Selvaraju et al. 2017): where in an image a class was seen."""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import MODEL_UNUSABLE
from anchorage.learning.data.augmentation import levels
from anchorage.learning.data.decoding import with_levels_of
from anchorage.learning.inference import ImageModel

_LEAST_SIDE = 224
"""Pixels of a picture's side; smaller images are enlarged."""
_OPACITY = 0.65


def heat(
    model: ImageModel, images: NDArray[np.uint8] | NDArray[np.uint16], classes: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return how strongly each part of an image speaks for a class, over the last convolution's maps: eq. 1 and 2, divided by the largest value.

    Parameters
    ----------
    model : ImageModel
        Its encoder has a convolution.
    images : ndarray of uint8 or uint16, shape [n, channels, size, size]
        Pixels.
    classes : ndarray of int64, shape [n]
        The class of each image.

    Returns
    -------
    ndarray of float32, shape [n, size, size]
        From 0 to 1; 0 where the network does not look, and everywhere if nothing speaks for the class.

    Raises
    ------
    AnchorageError
        The network has no convolution.
    """
    convolutions = [layer for layer in model.network.encoder.modules() if isinstance(layer, nn.Conv2d)]
    if not convolutions:
        raise AnchorageError(MODEL_UNUSABLE, f"{model.described.network} has no convolution, which Grad-CAM needs")
    outputs: list[Tensor] = []
    hook = convolutions[-1].register_forward_hook(lambda _layer, _inputs, output: outputs.append(output))
    try:
        with torch.enable_grad():
            views = model.views(levels(torch.from_numpy(np.ascontiguousarray(images)))).requires_grad_(True)
            chosen = model.network(views).gather(1, torch.from_numpy(classes)[:, None]).sum()
            (gradient,) = torch.autograd.grad(chosen, outputs[-1])
    finally:
        hook.remove()
    maps = outputs[-1].detach()
    heat_maps = functional.relu((gradient.mean((2, 3), keepdim=True) * maps).sum(1, keepdim=True))
    heat_maps = functional.interpolate(heat_maps, views.shape[2:], mode="bilinear", align_corners=False)
    heat_maps = heat_maps / heat_maps.amax((1, 2, 3), keepdim=True).clamp_min(torch.finfo(heat_maps.dtype).tiny)
    before = (images.shape[-1] - heat_maps.shape[-1]) // 2  # of a network that sees the middle
    after = images.shape[-1] - heat_maps.shape[-1] - before
    return np.asarray(functional.pad(heat_maps[:, 0], (before, after, before, after)).numpy(), np.float32)


def picture(pixels: NDArray[np.uint8] | NDArray[np.uint16], heat_map: NDArray[np.float32]) -> Image.Image:
    """Return an image with its heat in front, from transparent over red to yellow.

    Parameters
    ----------
    pixels : ndarray of uint8 or uint16, shape [channels, size, size]
        The image as the model has it.
    heat_map : ndarray of float32, shape [size, size]
        Of `heat`.
    """
    side = max(_LEAST_SIDE, pixels.shape[-1])
    colours = np.broadcast_to(with_levels_of(pixels, np.uint8), (3, *pixels.shape[1:])).transpose(1, 2, 0)
    planes = Image.fromarray(np.ascontiguousarray(colours))
    shown = np.asarray(planes.resize((side, side), Image.Resampling.NEAREST), np.float32)
    share = np.asarray(Image.fromarray(heat_map).resize((side, side), Image.Resampling.BILINEAR), np.float32)[..., None]
    colour = np.concatenate([np.full_like(share, 255), 255 * share, np.zeros_like(share)], 2)
    mixed = shown + _OPACITY * share * (colour - shown)
    return Image.fromarray(np.rint(mixed).clip(0, 255).astype(np.uint8))

"""Colour and tone operations of RandAugment on batches; images are float32 [b, c, h, w] in 0 … 1 (torch).

Each operation takes the batch and a sign per image, +1 or −1 as [b, 1, 1, 1], at the magnitude of RandAugment's m = 10 of 30.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

_GREY = (0.299, 0.587, 0.114)
_CHANGE = 0.9 * 10 / 30
_SOLARISE_ABOVE = 1 - 10 / 30
_POSTERISE_BITS = 7


def _blend(images: Tensor, plain: Tensor, sign: Tensor) -> Tensor:
    """Move away from (+) or towards (−) a plain version of the images."""
    return (plain + (1 + _CHANGE * sign) * (images - plain)).clamp_(0, 1)


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] == 1:
        return images
    weights = torch.tensor(_GREY, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)


def brightness(images: Tensor, sign: Tensor) -> Tensor:
    """Lighten or darken."""
    return _blend(images, torch.zeros_like(images), sign)


def colour(images: Tensor, sign: Tensor) -> Tensor:
    """Saturate or fade; grey images stay."""
    return _blend(images, _grey(images), sign)


def contrast(images: Tensor, sign: Tensor) -> Tensor:
    """Move away from or towards the image's mean grey."""
    return _blend(images, _grey(images).mean(dim=(1, 2, 3), keepdim=True), sign)


def sharpness(images: Tensor, sign: Tensor) -> Tensor:
    """Sharpen or blur (3×3); the outermost pixels stay."""
    channels = images.shape[1]
    kernel = torch.ones(3, 3, device=images.device)
    kernel[1, 1] = 5
    smooth = images.clone()
    smooth[..., 1:-1, 1:-1] = functional.conv2d(
        images, (kernel / kernel.sum()).expand(channels, 1, 3, 3), groups=channels
    )
    return _blend(images, smooth, sign)


def posterise(images: Tensor, sign: Tensor) -> Tensor:
    """Keep the upper bits of every value."""
    step = 2 ** (8 - _POSTERISE_BITS)
    return (images * 255).round_().div_(step, rounding_mode="floor").mul_(step / 255)


def solarise(images: Tensor, sign: Tensor) -> Tensor:
    """Invert bright values."""
    return torch.where(images > _SOLARISE_ABOVE, 1 - images, images)


def autocontrast(images: Tensor, sign: Tensor) -> Tensor:
    """Stretch every channel to the whole range; a flat channel stays."""
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    span = high - low
    return torch.where(span > 0, (images - low) / span.clamp_min(1e-6), images).clamp_(0, 1)


def equalise(images: Tensor, sign: Tensor) -> Tensor:
    """Flatten every channel's histogram, by Pillow's rule: lut = (count below + step // 2) // step."""
    planes = (images * 255).round_().long().flatten(0, 1).flatten(1)
    rows = torch.arange(len(planes), device=images.device).unsqueeze(1)
    counts = torch.bincount((planes + 256 * rows).flatten(), minlength=256 * len(planes)).view(len(planes), 256)
    step = (counts.sum(1) - counts.gather(1, planes.amax(1, keepdim=True)).squeeze(1)).div(255, rounding_mode="floor")
    below = counts.cumsum(1) - counts
    safe = step.clamp_min(1).unsqueeze(1)
    table = (below + safe.div(2, rounding_mode="floor")).div(safe, rounding_mode="floor").clamp_(0, 255)
    flat = (step == 0).view(*images.shape[:2], 1, 1)
    return torch.where(flat, images, table.gather(1, planes).view_as(images) / 255)


OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    brightness,
    colour,
    contrast,
    sharpness,
    posterise,
    solarise,
    autocontrast,
    equalise,
)

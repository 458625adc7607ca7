"""Colour and tone operations on batches; images are float32 [b, c, h, w] in 0 … 1 (torch).

Each takes the images and a value per image, [b, 1, 1, 1], whose meaning is the operation's own; Pillow's names and rules.
"""

import torch
from torch import Tensor
from torch.nn import functional

_GREY = (0.299, 0.587, 0.114)
_BLUR_REACH = 6
"""Pixels to each side that a blur adds up: three times the largest sigma."""


def _blend(images: Tensor, plain: Tensor, factor: Tensor) -> Tensor:
    """Move away from (factor above 1) or towards (below 1) a plain version of the images."""
    return (plain + factor * (images - plain)).clamp_(0, 1)


def _lightness(images: Tensor) -> Tensor:
    if images.shape[1] == 1:
        return images
    red, green, blue = (weight * images[:, channel, None] for channel, weight in enumerate(_GREY))
    return red + green + blue


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Lighten or darken."""
    return (factor * images).clamp_(0, 1)


def colour(images: Tensor, factor: Tensor) -> Tensor:
    """Saturate or fade; grey images stay."""
    return _blend(images, _lightness(images), factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Move away from or towards the image's mean grey."""
    return _blend(images, _lightness(images).mean(dim=(1, 2, 3), keepdim=True), factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Sharpen or blur (3×3); the outermost pixels stay."""
    channels = images.shape[1]
    kernel = torch.ones(3, 3, device=images.device)
    kernel[1, 1] = 5
    smooth = images.clone()
    smooth[..., 1:-1, 1:-1] = functional.conv2d(images, (kernel / 13).expand(channels, 1, 3, 3), groups=channels)
    return _blend(images, smooth, factor)


def posterise(images: Tensor, bits: Tensor) -> Tensor:
    """Keep so many upper bits of every value; broken numbers are rounded down."""
    step = 2 ** (8 - bits.floor())
    return (images * 255).round_().div_(step, rounding_mode="floor").mul_(step / 255)


def solarise(images: Tensor, above: Tensor) -> Tensor:
    """Invert bright values."""
    return torch.where(images > above, 1 - images, images)


def autocontrast(images: Tensor, unused: Tensor) -> Tensor:
    """Stretch every channel to the whole range; a flat channel stays."""
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    span = high - low
    return torch.where(span > 0, (images - low) / span.clamp_min(1e-6), images).clamp_(0, 1)


def equalise(images: Tensor, unused: Tensor) -> Tensor:
    """Flatten every channel's histogram, by Pillow's rule: lut = (count below + step // 2) // step."""
    planes = (images * 255).round_().long().flatten(0, 1).flatten(1)
    counts = torch.zeros(len(planes), 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(1, planes, torch.ones_like(planes))
    step = (counts.sum(1) - counts.gather(1, planes.amax(1, keepdim=True)).squeeze(1)).div(255, rounding_mode="floor")
    below = counts.cumsum(1) - counts
    safe = step.clamp_min(1).unsqueeze(1)
    table = (below + safe.div(2, rounding_mode="floor")).div(safe, rounding_mode="floor").clamp_(0, 255)
    flat = (step == 0).view(*images.shape[:2], 1, 1)
    return torch.where(flat, images, table.gather(1, planes).view_as(images) / 255)


def hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by a share of the colour circle, -0.5 to 0.5; grey images stay."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    value, low = images.amax(1), images.amin(1)
    span = value - low
    safe = span.clamp_min(1e-12)
    sector = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    turned = (sector + 6 * turn.squeeze(1)) % 6
    # the distance on the circle to red, green and blue says how much of the span each channel loses
    offsets = torch.arange(5, 0, -2, device=images.device).view(1, 3, 1, 1)
    place = (offsets + turned.unsqueeze(1)) % 6
    return value.unsqueeze(1) - span.unsqueeze(1) * torch.minimum(place, 4 - place).clamp(0, 1)


def grey(images: Tensor, unused: Tensor) -> Tensor:
    """Take the colour away."""
    return _lightness(images).expand_as(images)


def blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Blur by a Gaussian of sigma pixels, at most 2; borders go on as they are."""
    count, channels, _, _ = images.shape
    reach = torch.arange(-_BLUR_REACH, _BLUR_REACH + 1, device=images.device)
    kernel = (-0.5 * (reach / sigma.view(-1, 1)) ** 2).exp()
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(channels, 0)
    padded = functional.pad(images, (_BLUR_REACH,) * 4, mode="replicate").flatten(0, 1).unsqueeze(0)
    down = functional.conv2d(padded, kernel.view(-1, 1, 2 * _BLUR_REACH + 1, 1), groups=count * channels)
    across = functional.conv2d(down, kernel.view(-1, 1, 1, 2 * _BLUR_REACH + 1), groups=count * channels)
    return across.view_as(images)

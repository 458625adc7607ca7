"""Where the pixels of a view come from: shifts, crops, warps and their draws, for batches [b, channels, h, w] (torch)."""

from math import log

import torch
from torch import Tensor
from torch.nn import functional

_TRIES = 10
"""Boxes that `resized_crop` draws before it takes the whole image, as torchvision does."""


def integers(below: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw integers from 0 to below - 1 on the generator's device."""
    return torch.randint(below, shape, generator=generator, device=generator.device)


def uniform(low: float, high: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw float32 values on the generator's device."""
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)


def to_device(drawn: Tensor, device: torch.device) -> Tensor:
    """Bring what was drawn to the images without waiting for the device."""
    return drawn.to(device, non_blocking=True)


def rows_where(chosen: Tensor, device: torch.device) -> Tensor:
    """Return the positions of true values, int64; found where the values were drawn, so a GPU that holds the images is not waited for."""
    return to_device(torch.nonzero(chosen).squeeze(1), device)


def gather(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Take row and column indices of each image, [b, h'] and [b, w']."""
    count, channels, _, width = images.shape
    # of one plane: an index for each axis takes three times as long
    places = rows[:, :, None] * width + columns[:, None, :]
    chosen = places.flatten(1)[:, None].expand(-1, channels, -1)
    return images.flatten(2).gather(2, chosen).view(count, channels, *places.shape[1:])


def shifts(count: int, side: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw a shift per image by up to an eighth of the side.

    Returns
    -------
    inside : Tensor of bool, shape [count, side]
        Whether the source is within the image.
    source : Tensor of int64, shape [count, side]
        Row or column that comes to each place; beyond the border it is reflected.
    """
    pad = max(1, side // 8)
    offset = to_device(integers(2 * pad + 1, (count, 1), generator), device) - pad
    source = offset + torch.arange(side, device=device)
    inside = (source >= 0) & (source < side)
    return inside, side - 1 - (side - 1 - source.abs()).abs()


def windows(count: int, side: int, within: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw an interval of `side` places of `within` per image; return the places, int64 [count, side]."""
    start = to_device(integers(within - side + 1, (count, 1), generator), device)
    return start + torch.arange(side, device=device)


def maybe_mirrored(columns: Tensor, generator: torch.Generator) -> Tensor:
    """Turn the order of columns [b, w] round for every second image."""
    mirrored = to_device(integers(2, (len(columns), 1), generator).bool(), columns.device)
    return torch.where(mirrored, columns.flip(1), columns)


def identities(count: int, device: torch.device) -> Tensor:
    """Return matrices [count, 2, 3] that change nothing."""
    return torch.eye(2, 3, device=device).repeat(count, 1, 1)


def warp(values: Tensor, matrices: Tensor, *, mode: str = "bilinear", padding: str = "zeros") -> Tensor:
    """Sample each image through its 2x3 matrix, in coordinates from -1 to 1; there may be none."""
    if not len(values):
        return values
    grid = functional.affine_grid(matrices, list(values.shape), align_corners=False)
    return functional.grid_sample(values, grid, mode=mode, padding_mode=padding, align_corners=False)


def resized_crop(
    values: Tensor, generator: torch.Generator, *, smallest: float = 0.08, rotated: bool = False
) -> Tensor:
    """Cut a box of 3:4 to 4:3 out of each image and enlarge it to the whole, mirrored half of the time.

    Parameters
    ----------
    values : Tensor, shape [b, channels, h, w]
        Float images.
    generator : torch.Generator
        Source of all draws.
    smallest : float
        Least share of the area that a box has; the most is all of it.
    rotated : bool
        Whether to mirror top to bottom, too, and turn by quarters: each of the eight positions of a square is as likely.
    """
    count, _, height, width = values.shape
    area = height * width * uniform(smallest, 1.0, (count, _TRIES), generator)
    ratio = uniform(log(3 / 4), log(4 / 3), (count, _TRIES), generator).exp()
    wide, high = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (wide > 0) & (wide <= width) & (high > 0) & (high <= height)
    first = (fits.cumsum(1) == 0).sum(1, keepdim=True).clamp(max=_TRIES - 1)  # as many as do not fit before it
    has_fit = fits.any(1)
    wide = torch.where(has_fit, wide.gather(1, first).squeeze(1), float(width)) / width
    high = torch.where(has_fit, high.gather(1, first).squeeze(1), float(height)) / height
    x_start = _start(wide, width, generator)
    top = _start(high, height, generator)
    sign = 1.0 - 2 * integers(2, (count,), generator)
    matrices = identities(count, generator.device)
    matrices[:, 0, 0], matrices[:, 0, 2] = wide * sign, 2 * x_start + wide - 1
    matrices[:, 1, 1], matrices[:, 1, 2] = high, 2 * top + high - 1
    if rotated:
        matrices[:, 1, 1] *= 1.0 - 2 * integers(2, (count,), generator)
        transposed = integers(2, (count, 1, 1), generator).bool()
        matrices[..., :2] = torch.where(transposed, matrices[..., :2].flip(2), matrices[..., :2])
    return warp(values, to_device(matrices, values.device), padding="border")


def _start(share: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Draw the first pixel of an interval of `share` of the side, as a share of the side."""
    free = (side * (1 - share)).round() + 1
    return (uniform(0, 1, tuple(share.shape), generator) * free).floor().clamp_(max=free - 1) / side


def pixel_places(masks: Tensor) -> Tensor:
    """Return row, column and 1 of each pixel of masks [b, h, w], float32 [b, 3, h, w].

    Whatever moves pixels of images, moved in the same way these say where each pixel comes from: rows and columns are interpolated exactly, and what
    comes from beyond the image is 0.
    """
    count, height, width = masks.shape
    rows = torch.arange(height, dtype=torch.float32, device=masks.device).view(1, -1, 1).expand(count, -1, width)
    columns = torch.arange(width, dtype=torch.float32, device=masks.device).view(1, 1, -1).expand(count, height, -1)
    return torch.stack([rows, columns, torch.ones_like(rows)], 1)


def from_places(masks: Tensor, places: Tensor, unknown: int) -> Tensor:
    """Return masks of the nearest pixels, [b, h', w'].

    Parameters
    ----------
    masks : Tensor of integers, shape [b, h, w]
        Classes, or something else of each pixel.
    places : Tensor, shape [b, 3, h', w']
        What became of `pixel_places`.
    unknown : int
        Class of pixels that come mostly from beyond the image.
    """
    inside = places[:, 2]
    rows, columns = (
        (places[:, axis] / inside.clamp(min=0.5)).round().long().clamp(0, masks.shape[axis + 1] - 1) for axis in (0, 1)
    )
    batch = torch.arange(len(masks), device=masks.device).view(-1, 1, 1)
    return masks[batch, rows, columns].masked_fill(inside < 0.5, unknown)

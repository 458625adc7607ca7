"""Weak and strong augmentation of whole batches, and normalisation (METHODS.md 5.2); the one module of this package that needs torch.

Every draw comes from an explicit generator and is made on the generator's device, so that a CPU generator gives the same views on any
device. Batches are uint8 [b, channels, h, w] and come back normalised, float32 of the same shape. A large batch costs much less per image
than many small ones.

weak
    Flip (where the kind of image allows it) and crop after padding by an eighth of the side (4 pixels at 32), as SemiFL does.
strong, Natural and Dermoscopy
    Weak, then RandAugment(n = 2, m = 10): per image two of 14 operations at a third of their range with a random sign.
strong, Digits
    Weak, then small turns and scales, contrast, brightness, and a cut-out square: what keeps a digit a digit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import radians

import torch
from torch import Tensor
from torch.nn import functional

from anchorage.data.photometric import OPERATIONS
from anchorage.spec.data import AugmentationName

LAYERS = 2
"""RandAugment's n."""
_SHEAR = 0.3 * 10 / 30
_SHIFT = 2 * (150 / 331) * 10 / 30
"""In affine_grid's units, where the side is 2."""
_TURN = radians(30 * 10 / 30)
_GEOMETRIC = 5
"""Shear x, shear y, shift x, shift y, turn; then the photometric ones; then nothing."""


@dataclass(frozen=True, slots=True)
class Augmentation:
    """What fits one kind of image.

    Parameters
    ----------
    flip : bool
        Whether a mirrored image is still of its class.
    digits : bool
        Whether strong augmentation is the gentle one and the background is black.
    mean, std : tuple of float
        Of the three channels of values in 0 … 1; grey images use their means.
    """

    flip: bool
    digits: bool
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def normalise(self, images: Tensor) -> Tensor:
        """Return uint8 [b, c, h, w] as float32 with about zero mean and unit variance."""
        return self._normalised(images.float() / 255)

    def weak(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Flip and crop, then normalise."""
        return self.normalise(self._moved(images, generator))

    def strong(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment weakly, then strongly, then normalise."""
        values = self._moved(images, generator).float() / 255
        if self.digits:
            return self._normalised(_distort(values, generator))
        for _ in range(LAYERS):
            values = _rand_augment(values, generator)
        return self._normalised(values)

    def _normalised(self, values: Tensor) -> Tensor:
        channels = values.shape[1]
        mean, std = (torch.tensor(three, device=values.device).view(1, 3, 1, 1) for three in (self.mean, self.std))
        if channels == 1:
            mean, std = mean.mean(dim=1, keepdim=True), std.mean(dim=1, keepdim=True)
        return (values - mean) / std

    def _moved(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Flip and crop in one gather; padding is a reflection, or black for digits."""
        count, channels, height, width = images.shape
        down, rows = _shifted(count, height, generator, images.device)
        right, columns = _shifted(count, width, generator, images.device)
        if self.flip:
            mirrored = _integers(2, (count, 1), generator, images.device).bool()
            columns = torch.where(mirrored, columns.flip(1), columns)
        batch = torch.arange(count, device=images.device).view(-1, 1, 1, 1)
        planes = torch.arange(channels, device=images.device).view(1, -1, 1, 1)
        moved = images[batch, planes, rows[:, None, :, None], columns[:, None, None, :]]
        if self.digits:
            moved = moved * (down[:, None, :, None] & right[:, None, None, :])
        return moved


AUGMENTATIONS: Mapping[AugmentationName, Augmentation] = {
    "Digits": Augmentation(flip=False, digits=True, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    "Natural": Augmentation(flip=True, digits=False, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010)),
    "Dermoscopy": Augmentation(flip=True, digits=False, mean=(0.763, 0.546, 0.570), std=(0.141, 0.153, 0.170)),
}


def _integers(below: int, shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    return torch.randint(below, shape, generator=generator, device=generator.device).to(device)


def _uniform(low: float, high: float, count: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw [count] values."""
    drawn = torch.rand(count, generator=generator, device=generator.device).to(device)
    return low + (high - low) * drawn


def _shifted(count: int, side: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw a shift per image by up to an eighth of the side.

    Returns
    -------
    inside : Tensor of bool, shape [count, side]
        Whether the source is within the image.
    source : Tensor of int64, shape [count, side]
        Row or column that comes to each place; beyond the border it is reflected.
    """
    pad = max(1, side // 8)
    offset = _integers(2 * pad + 1, (count, 1), generator, device) - pad
    source = offset + torch.arange(side, device=device)
    inside = (source >= 0) & (source < side)
    return inside, side - 1 - (side - 1 - source.abs()).abs()


def _warped(values: Tensor, matrices: Tensor, padding: str) -> Tensor:
    """Sample each image through its 2×3 matrix, in coordinates from −1 to 1; there may be none."""
    if not len(values):
        return values
    grid = functional.affine_grid(matrices, list(values.shape), align_corners=False)
    return functional.grid_sample(values, grid, mode="bilinear", padding_mode=padding, align_corners=False)


def _identities(count: int, device: torch.device) -> Tensor:
    """Return matrices [count, 2, 3] that change nothing."""
    return torch.eye(2, 3, device=device).repeat(count, 1, 1)


def _turn(matrices: Tensor, rows: Tensor, angles: Tensor, scale: Tensor) -> None:
    """Set the left 2×2 block of some matrices to a rotation by `angles` (radians), scaled."""
    cosine, sine = scale * angles.cos(), scale * angles.sin()
    matrices[rows, 0, 0], matrices[rows, 0, 1] = cosine, -sine
    matrices[rows, 1, 0], matrices[rows, 1, 1] = sine, cosine


def _rand_augment(values: Tensor, generator: torch.Generator) -> Tensor:
    """Apply one operation to each image, drawn from all with equal chances."""
    count, device = len(values), values.device
    operation = _integers(_GEOMETRIC + len(OPERATIONS) + 1, (count,), generator, device)
    sign = 2.0 * _integers(2, (count,), generator, device) - 1
    matrices = _identities(count, device)
    for place, (row, column, amount) in enumerate(((0, 1, _SHEAR), (1, 0, _SHEAR), (0, 2, _SHIFT), (1, 2, _SHIFT))):
        matrices[:, row, column] = torch.where(operation == place, amount * sign, 0.0)
    turned = torch.nonzero(operation == _GEOMETRIC - 1).squeeze(1)
    _turn(matrices, turned, _TURN * sign[turned], torch.ones_like(sign[turned]))
    changed = values.clone()
    moved = torch.nonzero(operation < _GEOMETRIC).squeeze(1)
    changed[moved] = _warped(values[moved], matrices[moved], "reflection")
    for place, apply in enumerate(OPERATIONS, start=_GEOMETRIC):
        rows = torch.nonzero(operation == place).squeeze(1)
        if len(rows):
            changed[rows] = apply(values[rows], sign[rows].view(-1, 1, 1, 1))
    return changed


def _distort(values: Tensor, generator: torch.Generator) -> Tensor:
    """Turn by up to 15°, scale by up to a tenth, change contrast by 30 % and brightness by 0.1, cut out a square of a quarter."""
    count, _, height, width = values.shape
    device = values.device
    matrices = _identities(count, device)
    angles = _uniform(-radians(15), radians(15), count, generator, device)
    _turn(matrices, torch.arange(count, device=device), angles, _uniform(0.9, 1.1, count, generator, device))
    values = _warped(values, matrices, "zeros")
    gain = _uniform(0.7, 1.3, count, generator, device).view(-1, 1, 1, 1)
    lift = _uniform(-0.1, 0.1, count, generator, device).view(-1, 1, 1, 1)
    values = (values * gain + lift).clamp_(0, 1)
    rows, columns = (_within_cut(count, side, generator, device) for side in (height, width))
    return values.masked_fill(rows[:, None, :, None] & columns[:, None, None, :], 0.0)


def _within_cut(count: int, side: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw an interval of a quarter of the side per image; return bool [count, side]."""
    length = max(1, side // 4)
    start = _integers(side - length + 1, (count, 1), generator, device)
    place = torch.arange(side, device=device)
    return (place >= start) & (place < start + length)

"""RandAugment on batches: each image gets operations of its own (methods reference, 5.2; torch)."""

from collections.abc import Callable
from dataclasses import dataclass
from math import radians

import torch
from torch import Tensor

from anchorage.learning.data import photometric
from anchorage.learning.data.geometry import identities, integers, rows_where, to_device, uniform, warp

Values = tuple[float, float]

_SHIFT = 2 * 150 / 331
"""In affine_grid's units, where the side is 2."""

_GEOMETRIC: tuple[tuple[Values, Values], ...] = (
    ((-0.1, 0.1), (-0.3, 0.3)),
    ((-0.1, 0.1), (-0.3, 0.3)),
    ((-_SHIFT / 3, _SHIFT / 3), (-0.6, 0.6)),
    ((-_SHIFT / 3, _SHIFT / 3), (-0.6, 0.6)),
    ((-radians(10), radians(10)), (-radians(30), radians(30))),
)
"""Shear x, shear y, shift x, shift y, turn: their two values at m = 10 of 30, and the whole range."""

_PHOTOMETRIC: tuple[tuple[Callable[[Tensor, Tensor], Tensor], Values, Values], ...] = (
    (photometric.brightness, (0.7, 1.3), (0.05, 0.95)),
    (photometric.colour, (0.7, 1.3), (0.05, 0.95)),
    (photometric.contrast, (0.7, 1.3), (0.05, 0.95)),
    (photometric.sharpness, (0.7, 1.3), (0.05, 0.95)),
    (photometric.posterise, (7, 7), (4, 8)),
    (photometric.solarise, (2 / 3, 2 / 3), (0, 1)),
    (photometric.autocontrast, (0, 0), (0, 0)),
    (photometric.equalise, (0, 0), (0, 0)),
)
"""Operations, likewise; the fourteenth does nothing."""

_CUT_COLOUR = (125 / 255, 123 / 255, 114 / 255)


@dataclass(frozen=True, slots=True)
class RandAugment:
    """Some of 14 operations per image, drawn with replacement.

    Parameters
    ----------
    layers : int
        How many operations per image.
    uniform : bool
        Whether their magnitudes are drawn from the whole range (SemiAnAgg), else they are those of m = 10 with a random sign (SemiFL).
    cut : bool
        Whether a square of up to half the side is painted grey at the end (SemiAnAgg).
    """

    layers: int
    uniform: bool = False
    cut: bool = False

    def __call__(self, values: Tensor, generator: torch.Generator) -> Tensor:
        """Return changed images; `values` is float32 [b, c, h, w] in 0 … 1 and stays as it is."""
        for _ in range(self.layers):
            values = self._layer(values, generator)
        paint = torch.tensor(_CUT_COLOUR if values.shape[1] == 3 else (sum(_CUT_COLOUR) / 3,))
        return _cut_out(values, generator, paint) if self.cut else values

    def places(self, values: Tensor, generator: torch.Generator) -> Tensor:
        """Do what the same draws do to where pixels come from, and nothing else; what comes from nowhere is 0 (`Augmentation.with_masks`)."""
        for _ in range(self.layers):
            values = self._layer(values, generator, colours=False)
        return _cut_out(values, generator, torch.zeros(values.shape[1])) if self.cut else values

    def _layer(self, values: Tensor, generator: torch.Generator, *, colours: bool = True) -> Tensor:
        count, device = len(values), values.device
        operation = integers(len(_GEOMETRIC) + len(_PHOTOMETRIC) + 1, (count,), generator)
        level = uniform(0, 1, (count,), generator) if self.uniform else integers(2, (count,), generator).float()
        changed = values.clone()
        moved = rows_where(operation < len(_GEOMETRIC), device)
        matrices = to_device(self._matrices(operation, level), device)
        changed[moved] = warp(values[moved], matrices[moved], mode="nearest")
        for place, (apply, fixed, whole_range) in enumerate(_PHOTOMETRIC if colours else (), start=len(_GEOMETRIC)):
            chosen = operation == place
            if chosen.any():
                rows = rows_where(chosen, device)
                amount = to_device(self._amount(level[chosen], fixed, whole_range), device)
                changed[rows] = apply(values[rows], amount.view(-1, 1, 1, 1))
        return changed

    def _amount(self, level: Tensor, fixed: Values, whole_range: Values) -> Tensor:
        low, high = whole_range if self.uniform else fixed
        return low + (high - low) * level

    def _matrices(self, operation: Tensor, level: Tensor) -> Tensor:
        """Return the matrix [2, 3] of each image, where the drawn operations and their levels are; shears start from the upper left corner."""
        matrices = identities(len(level), level.device)
        amounts = [
            torch.where(operation == place, self._amount(level, *values), 0.0)
            for place, values in enumerate(_GEOMETRIC)
        ]
        shear_x, shear_y, shift_x, shift_y, angle = amounts
        matrices[:, 0, 0] = matrices[:, 1, 1] = angle.cos()
        matrices[:, 0, 1], matrices[:, 0, 2] = shear_x - angle.sin(), shear_x + shift_x
        matrices[:, 1, 0], matrices[:, 1, 2] = shear_y + angle.sin(), shear_y + shift_y
        return matrices


def _cut_out(values: Tensor, generator: torch.Generator, paint: Tensor) -> Tensor:
    """Paint a square of up to half the side, which may reach over the border, with a value per channel."""
    count, _, height, width = values.shape
    device = values.device
    half = to_device(uniform(0, 0.25, (count, 1), generator) * height, device)
    hidden = []
    for side in (height, width):
        centre = to_device(uniform(0, side, (count, 1), generator), device)
        hidden.append((torch.arange(side, device=device) + 0.5 - centre).abs() < half)
    inside = hidden[0][:, None, :, None] & hidden[1][:, None, None, :]
    return torch.where(inside, to_device(paint, device).view(1, -1, 1, 1), values)

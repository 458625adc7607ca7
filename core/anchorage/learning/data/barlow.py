"""The two views of FedBarlow: crops, colours, blur and solarisation at random (methods reference, 5.2; torch)."""

from collections.abc import Callable

import torch
from torch import Tensor

from anchorage.learning.data import photometric
from anchorage.learning.data.geometry import resized_crop, rows_where, to_device, uniform

_JITTER: tuple[tuple[Callable[[Tensor, Tensor], Tensor], float, float], ...] = (
    (photometric.brightness, 0.6, 1.4),
    (photometric.contrast, 0.6, 1.4),
    (photometric.colour, 0.8, 1.2),
    (photometric.hue, -0.1, 0.1),
)


def barlow_views(values: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return two views of float32 images [b, c, h, w] in 0 … 1; the first is always blurred, the second at times solarised."""
    return _view(values, generator, blur=1.0, solarise=0.0), _view(values, generator, blur=0.1, solarise=0.2)


def _view(values: Tensor, generator: torch.Generator, *, blur: float, solarise: float) -> Tensor:
    values = resized_crop(values, generator)
    values = _jitter(values, generator)
    values = _sometimes(0.2, photometric.grey, values, (0, 0), generator)
    values = _sometimes(blur, photometric.blur, values, (0.1, 2.0), generator)
    return _sometimes(solarise, photometric.solarise, values, (127 / 255, 127 / 255), generator)


def _sometimes(
    chance: float,
    apply: Callable[[Tensor, Tensor], Tensor],
    values: Tensor,
    between: tuple[float, float],
    generator: torch.Generator,
) -> Tensor:
    """Change each image with a chance, by an amount of its own."""
    chosen = uniform(0, 1, (len(values),), generator) < chance
    return _change(chosen, apply, values, uniform(*between, (len(values),), generator))


def _change(chosen: Tensor, apply: Callable[[Tensor, Tensor], Tensor], values: Tensor, amounts: Tensor) -> Tensor:
    if not chosen.any():
        return values
    amount = to_device(amounts[chosen], values.device).view(-1, 1, 1, 1)
    if chosen.all():
        return apply(values, amount)
    rows = rows_where(chosen, values.device)
    return values.index_copy(0, rows, apply(values[rows], amount))


def _jitter(values: Tensor, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast, saturation and hue in an order per image, for four of five images."""
    count = len(values)
    jittered = uniform(0, 1, (count, 1), generator) < 0.8
    order = uniform(0, 1, (count, len(_JITTER)), generator).argsort(1)
    amounts = [uniform(low, high, (count,), generator) for _, low, high in _JITTER]
    for turn in range(len(_JITTER)):
        for place, (apply, _, _) in enumerate(_JITTER):
            values = _change(jittered[:, 0] & (order[:, turn] == place), apply, values, amounts[place])
    return values

"""Pictures of how a model segments; matplotlib is only loaded where one is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.model_hooks import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from anchorage.api.model_card import Assessment, Interval

_PREFIX = "dice/"
_LEAST_SIDE = 128
"""Pixels that a side of an image has at least where it is shown."""
_BORDER = ((0, 0), (2, 2), (2, 2), (0, 0))
_CLASS_COLOURS = ((230, 60, 40), (40, 120, 230), (50, 180, 80), (240, 180, 30), (150, 80, 200), (30, 190, 190))
"""Of the foreground classes, in turn."""


def assessment_charts(scored: Assessment) -> Iterator[Chart]:
    """Yield the mean Dice of each foreground class with its interval."""
    dice_intervals = {
        name.removeprefix(_PREFIX): each for name, each in scored.intervals.items() if name.startswith(_PREFIX)
    }
    if dice_intervals:
        dice_text = ", ".join(f"{name} {each.value:.3f}" for name, each in dice_intervals.items())
        says = f"Mean Dice over the images that have the class: {dice_text}."
        yield Chart("dice", "Dice of each foreground class", says, partial(draw_dice, intervals=dice_intervals))


def draw_dice(axes: Axes, intervals: Mapping[str, Interval]) -> None:
    """Draw a point with its interval for each class."""
    from anchorage.engine.tracking.figures import shorten

    for place, each in enumerate(intervals.values()):
        axes.plot([each.low, each.high], [place, place], color="tab:blue", linewidth=2)
        axes.plot([each.value], [place], "o", color="tab:blue")
    axes.set_yticks(range(len(intervals)), [shorten(name) for name in intervals])
    axes.set(xlabel="mean Dice over the images that have the class", xlim=(0, 1), ylim=(len(intervals) - 0.5, -0.5))


def example_picture(
    pixels: NDArray[np.uint8], masks: NDArray[np.uint8], predicted: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Return images side by side, uint8 [h, w, 3]: above as they are, then with the true and with the predicted classes in colours.

    Parameters
    ----------
    pixels : ndarray of uint8, shape [k, channels, H, W]
        Images.
    masks, predicted : ndarray of uint8, shape [k, H, W]
        True and predicted classes; what is not known is not coloured.
    """
    colours = np.broadcast_to(pixels, (len(pixels), 3, *pixels.shape[2:])).transpose(0, 2, 3, 1)
    times = -(-_LEAST_SIDE // pixels.shape[2])
    rows = [colours, *(_overlay(colours, classes) for classes in (masks, predicted))]
    tiles = [np.pad(row.repeat(times, 1).repeat(times, 2), _BORDER, constant_values=255) for row in rows]
    return np.concatenate([np.concatenate(list(row), 1) for row in tiles], 0)


def _overlay(images: NDArray[np.uint8], classes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Lay the colour of each foreground class over images [k, H, W, 3], half transparent within it and opaque on its border."""
    shown = images.copy()
    for value in np.unique(classes[(classes > 0) & (classes != UNKNOWN_PIXEL)]):
        colour = np.array(_CLASS_COLOURS[(int(value) - 1) % len(_CLASS_COLOURS)], np.float64)
        inside = classes == value
        padded = np.pad(inside, ((0, 0), (1, 1), (1, 1)))
        within = padded[:, :-2, 1:-1] & padded[:, 2:, 1:-1] & padded[:, 1:-1, :-2] & padded[:, 1:-1, 2:]
        shown[inside] = np.rint(0.65 * shown[inside] + 0.35 * colour).astype(np.uint8)
        shown[inside & ~within] = colour.astype(np.uint8)
    return shown

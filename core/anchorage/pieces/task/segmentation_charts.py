"""Pictures of how a model segments; matplotlib is only loaded where one is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from anchorage.learning.model_hooks import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from anchorage.api.model_card import Assessment, Interval

_PREFIX = "dice/"


def assessment_charts(scored: Assessment) -> Iterator[Chart]:
    """Yield the mean Dice of each foreground class with its interval."""
    found = {name.removeprefix(_PREFIX): each for name, each in scored.intervals.items() if name.startswith(_PREFIX)}
    if found:
        told = ", ".join(f"{name} {each.value:.3f}" for name, each in found.items())
        says = f"Mean Dice over the images that have the class: {told}."
        yield Chart("dice", "Dice of each foreground class", says, partial(draw_dice, found=found))


def draw_dice(axes: Axes, found: Mapping[str, Interval]) -> None:
    """Draw a point with its interval for each class."""
    from anchorage.engine.tracking.figures import shortened

    for place, each in enumerate(found.values()):
        axes.plot([each.low, each.high], [place, place], color="tab:blue", linewidth=2)
        axes.plot([each.value], [place], "o", color="tab:blue")
    axes.set_yticks(range(len(found)), [shortened(name) for name in found])
    axes.set(xlabel="mean Dice over the images that have the class", xlim=(0, 1), ylim=(len(found) - 0.5, -0.5))

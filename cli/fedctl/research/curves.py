"""A metric over rounds and over bytes, as numbers and as a picture."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedctl.research.pictures import new_figure, save_figure
from fedctl.research.results import Results, Spread, finite

LONGEST_LABEL = 256
"""Characters of a line's name in the legend: folders are long."""


@dataclass(frozen=True, slots=True)
class Point:
    """A metric after a round."""

    round: int
    """The round."""
    nbytes: float
    """Model bytes, up and down, that travelled until then; mean over the seeds."""
    value: Spread
    """The metric."""

    def as_document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "round": self.round,
            "bytes": self.nbytes,
            "mean": finite(self.value.mean),
            "std": finite(self.value.std),
        }


def curve(results: Results, metric: str) -> tuple[Point, ...]:
    """Return a metric after every round in which all seeds have it, ascending."""
    reached: dict[int, list[tuple[int, float]]] = {}
    for seed in results.seeds:
        nbytes = 0
        for entry in seed.rounds:
            nbytes += entry.bytes_up + entry.bytes_down
            if metric in entry.metrics:
                reached.setdefault(entry.round, []).append((nbytes, entry.metrics[metric]))
    return tuple(
        Point(number, sum(nbytes for nbytes, _ in samples) / len(samples), Spread(tuple(value for _, value in samples)))
        for number, samples in sorted(reached.items())
        if len(samples) == len(results.seeds)
    )


def plot(curves: Mapping[str, tuple[Point, ...]], metric: str, images: str, path: Path) -> None:
    """Draw curves over rounds and over bytes: the mean as a line, one standard deviation around it as a band.

    Parameters
    ----------
    curves : mapping of str to tuple of Point
        By the name in the legend.
    metric : str
        What they show.
    images : str
        On which images, such as ``validation``.
    path : Path
        The picture, of a kind of `fedctl.research.pictures.SUFFIXES`.

    Raises
    ------
    AnchorageError
        matplotlib is not installed, or the picture cannot be written.
    """
    figure = new_figure(10, 4.2)
    from anchorage.engine.tracking.figures import fit_shares, legend_below, line_style, shorten

    by_round, by_bytes = figure.subplots(1, 2, sharey=True)
    unit, factor = _unit(max((point.nbytes for points in curves.values() for point in points), default=0.0))
    for place, (name, points) in enumerate(curves.items()):
        style = line_style(place, len(curves), len(points)) | {"label": shorten(name, LONGEST_LABEL)}
        _draw(by_round, [point.round for point in points], points, style)
        _draw(by_bytes, [point.nbytes / factor for point in points], points, style)
    by_round.set(xlabel="round", ylabel=f"{metric.replace('_', ' ')} ({images} images)")
    by_round.xaxis.get_major_locator().set_params(integer=True)
    by_bytes.set(xlabel=f"model bytes up and down ({unit})")
    for axes in (by_round, by_bytes):
        axes.grid(alpha=0.3)
    fit_shares(by_round)
    legend_below(by_round)
    save_figure(figure, path)


def _unit(most: float) -> tuple[str, float]:
    """Return the unit in which so many bytes are a short number, and its bytes."""
    return next(((unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6)) if most >= size), ("kB", 1e3))


def _draw(axes: Any, places: list[float] | list[int], points: tuple[Point, ...], style: Mapping[str, Any]) -> None:
    means = [point.value.mean for point in points]
    (line,) = axes.plot(places, means, **style)
    if points and len(points[0].value.values) > 1:
        lower = [point.value.mean - point.value.std for point in points]
        upper = [point.value.mean + point.value.std for point in points]
        axes.fill_between(places, lower, upper, color=line.get_color(), alpha=0.2, linewidth=0)

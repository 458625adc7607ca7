"""Pictures as papers have them: right pseudo-labels of each silo over the rounds, and embeddings of validation images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anchorage.api.task import Task
from anchorage.engine.embedding_plane import EmbeddingPlane
from fedctl.research.pictures import new_figure, save_figure
from fedctl.research.results import Curve, Results

MOST_LINES = 10
"""Silos with a line of their own; of more, their median, quartiles and range are drawn."""
_SIDE = 3.2
"""Inches of a panel."""


def draw_paper_pictures(results: Mapping[str, Results], path: Path) -> None:
    """Draw what the results have of both, as ``NAME-pseudo-labels`` and ``NAME-embeddings`` beside a picture ``NAME``.

    Parameters
    ----------
    results : mapping of str to Results
        By the name of the row.
    path : Path
        The picture that they stand beside.

    Raises
    ------
    AnchorageError
        matplotlib is not installed, or a picture cannot be written.
    """
    curves = {name: curve for name, result in results.items() if (curve := result.pseudo_labels())}
    if curves:
        _draw_pseudo_labels(curves, path.with_stem(f"{path.stem}-pseudo-labels"))
    planes = {name: drawn for name, result in results.items() if (drawn := _planes(result))}
    if planes:
        task = next(iter(results.values())).federation.spec.task
        _draw_embeddings(planes, task, path.with_stem(f"{path.stem}-embeddings"))


def _planes(result: Results) -> dict[int, EmbeddingPlane]:
    """Return the embeddings of the first seed by round."""
    return {entry.round: entry.embeddings for entry in result.seeds[0].rounds if entry.embeddings is not None}


def _draw_pseudo_labels(curves: Mapping[str, Mapping[str, Curve]], path: Path) -> None:
    """Draw a panel per row: the share of right ones among the accepted pseudo-labels over the rounds."""
    figure = new_figure(1 + _SIDE * len(curves), 4.2)
    for axes, (name, silos) in zip(
        figure.subplots(1, len(curves), sharey=True, squeeze=False)[0], curves.items(), strict=True
    ):
        if len(silos) <= MOST_LINES:
            for silo, points in silos.items():
                axes.plot(*zip(*points, strict=True), marker="o" if len(points) < 30 else "", markersize=3, label=silo)
        else:
            _draw_range(axes, silos)
        axes.set(title=name, xlabel="round", ylim=(0, 1.02))
        axes.label_outer()
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.supylabel("right among the accepted pseudo-labels")
    save_figure(figure, path)


def _draw_range(axes: Any, silos: Mapping[str, Curve]) -> None:
    """Draw the range, the quartiles and the median of many silos."""
    by_round: dict[int, list[float]] = {}
    for points in silos.values():
        for at, share in points:
            by_round.setdefault(at, []).append(share)
    rounds = sorted(by_round)
    least, low, middle, high, most = np.array([np.percentile(by_round[at], [0, 25, 50, 75, 100]) for at in rounds]).T
    axes.fill_between(rounds, least, most, alpha=0.15, color="tab:blue", label=f"all {len(silos)} silos")
    axes.fill_between(rounds, low, high, alpha=0.3, color="tab:blue", label="middle half")
    axes.plot(rounds, middle, color="tab:blue", label="median")


def _draw_embeddings(planes: Mapping[str, Mapping[int, EmbeddingPlane]], task: Task, path: Path) -> None:
    """Draw a line of panels per row, one per round that was drawn."""
    columns = max(map(len, planes.values()))
    figure = new_figure(_SIDE * columns, 0.6 + _SIDE * len(planes))
    from anchorage.engine.tracking.figures import PROJECTION_NAMES, classes_of, draw_plane, name_colours

    grid = figure.subplots(len(planes), columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for line, (name, rounds) in zip(grid, planes.items(), strict=True):
        for axes, (number, plane) in zip(line, rounds.items(), strict=False):
            axes.set_axis_on()
            dots = draw_plane(axes, plane.as_array(), classes_of(task), size=6)
            axes.set(xticks=[], yticks=[])
            axes.set_title(f"{name}, round {number}" if axes is line[0] else f"round {number}", fontsize="medium")
            axes.set_xlabel(f"{PROJECTION_NAMES[plane.projection]} of {plane.layer}", fontsize="small")
    true = np.concatenate([plane.as_array()[:, 0] for rounds in planes.values() for plane in rounds.values()])
    name_colours(grid[0, 0], dots, true, classes_of(task))
    save_figure(figure, path)

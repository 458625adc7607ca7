"""Figures of a model's scores, drawn without a display: for MLflow, and for the report of `fedctl`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from PIL import Image

from anchorage.api.task import OutputKind, Task
from anchorage.api.text import in_percent
from anchorage.learning.model_hooks import Chart

MOST_NAMED = 25
"""Classes, or other lines, whose names a picture has room for."""
_LONGEST_NAME = 16
LEGEND_NAME = 64
"""Characters of a name in a legend, which has room for them."""
_LETTERS_IN_A_ROW = 40


def figure_of(chart: Chart, title: str) -> Figure:
    """Draw a chart of a task with a title above its own."""
    figure = Figure(figsize=(5.6, 5), layout="constrained")
    axes = figure.subplots()
    chart.draw(axes)
    axes.set_title(f"{title}\n{chart.title}")
    return figure


def render_image(figure: Figure) -> Image.Image:
    """Return a figure's pixels, those of `Figure.savefig`, which goes over the figure twice: to lay it out, and to draw it."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return Image.fromarray(np.asarray(canvas.buffer_rgba()))  # type: ignore[no-untyped-call]


def embeddings(rows: NDArray[np.float32], title: str, task: Task) -> Figure:
    """Draw embeddings in the plane of their two principal components: colour is what is true, a cross a wrong class.

    `rows` has shape [n, 2 + d]: what is true, what is predicted, then the embedding (`anchorage.transport.messages.Report`).
    """
    plane, explained = principal_plane(rows[:, 2:])
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    dots = draw_plane(axes, np.column_stack([rows[:, :2], plane]), classes_of(task))
    axes.set(
        xlabel=f"component 1 ({in_percent(explained[0])}%)",
        ylabel=f"component 2 ({in_percent(explained[1])}%)",
        title=title,
    )
    name_colours(axes, dots, rows[:, 0], classes_of(task))
    return figure


def draw_projection(projection: str, points: NDArray[np.float64], title: str, task: Task) -> Figure:
    """Draw embeddings that were projected before (`anchorage.engine.embedding_plane.EmbeddingPlane`), shape [n, 4]."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    draw_projected(axes, projection, points, task)
    axes.set_title(title)
    return figure


def draw_projected(axes: Axes, projection: str, points: NDArray[np.float64], task: Task) -> None:
    """Draw the points of `draw_projection` with a legend of the classes, or a bar of the colours."""
    classes = classes_of(task)
    name_colours(axes, draw_plane(axes, points, classes), points[:, 0], classes)
    name = PROJECTION_NAMES[projection]
    axes.set(xlabel=f"{name} 1", ylabel=f"{name} 2")


def classes_of(task: Task) -> Sequence[str]:
    """Return the names by which points are coloured: the classes of a task of which one is true; empty: colours stand for numbers."""
    return task.outputs if task.output_kind is OutputKind.EXCLUSIVE else ()


def draw_plane(axes: Axes, points: NDArray[Any], classes: Sequence[str], size: float = 12) -> PathCollection:
    """Draw points [n, 4], what is true, what is predicted and coordinates: colour is what is true, a cross a wrong class; return the dots."""
    true, right = points[:, 0], points[:, 0] == points[:, 1]
    if not classes:
        return axes.scatter(points[:, 2], points[:, 3], c=true, s=size, cmap="viridis")
    few = len(classes) <= 10
    style: dict[str, Any] = {"cmap": "tab10" if few else "turbo", "vmin": 0, "vmax": 9 if few else len(classes) - 1}
    dots = axes.scatter(points[right, 2], points[right, 3], c=true[right], s=size, **style)
    axes.scatter(points[~right, 2], points[~right, 3], c=true[~right], s=2 * size, marker="x", linewidths=1, **style)
    return dots


def name_colours(axes: Axes, dots: PathCollection, true: NDArray[Any], classes: Sequence[str]) -> None:
    """Add a legend of the classes that `draw_plane` drew, of many classes and of numbers a colour bar."""
    label = "true class (cross: predicted wrongly)" if classes else "true value"
    if 0 < len(classes) <= MOST_NAMED:
        present = np.unique(true).astype(int)
        keys = [
            Line2D([], [], marker="o", linestyle="", color=tuple(colour), label=shorten(classes[c], LEGEND_NAME))
            for c, colour in zip(present, dots.to_rgba(present), strict=True)
        ]
        legend_below(axes, size=8, title=label, handles=keys)
    else:
        axes.figure.colorbar(dots, ax=axes, label=label)


_STYLES = ("-", (0, (5, 3)), (0, (1, 1.5)), (0, (7, 2, 1, 2)))
_THICKEST, _THINNEST = 3.0, 1.2
_MARKERS = "os^Dv"
_FEW_POINTS = 30
_COLUMNS = 4


def line_style(place: int, lines: int, points: int = _FEW_POINTS) -> dict[str, Any]:
    """Return how a line of several is drawn: later ones are thinner and broken otherwise, so that lines that coincide are all seen.

    Parameters
    ----------
    place : int
        Which line, from 0 on, in the order in which they are drawn.
    lines : int
        How many there are.
    points : int
        How many points it has; those of short lines are marked.
    """
    width = _THICKEST - (_THICKEST - _THINNEST) * place / max(1, lines - 1)
    style: dict[str, Any] = {"linestyle": _STYLES[place % len(_STYLES)], "linewidth": width if lines > 1 else 1.5}
    if points < _FEW_POINTS:
        style |= {"marker": _MARKERS[place % len(_MARKERS)], "markersize": 2 + 1.5 * style["linewidth"]}
        style |= {"markerfacecolor": "none"} if place % 2 else {}
    return style


def fit_shares(axes: Axes) -> None:
    """Keep the vertical axis, which fits its data, from showing what shares cannot be: below 0 or above 1."""
    values = [number for line in axes.lines for number in np.asarray(line.get_ydata(), float) if np.isfinite(number)]
    if values and min(values) >= 0 and max(values) <= 1:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -0.02), min(high, 1.02))


def legend_below(
    axes: Axes, *, size: float = 9, title: str | None = None, handles: Sequence[Artist] | None = None
) -> None:
    """Put the legend below a figure with a constrained layout, whole: in as many columns as fit, wrapped where one is too wide; the figure
    grows by its height.

    Parameters
    ----------
    axes : Axes
        What the legend is of.
    size : float
        Size of its text in points.
    title : str or None
        Its title.
    handles : sequence of Artist or None
        What it lists, with their labels; None takes what the axes have.
    """
    figure, handles = axes.get_figure(root=True), handles or axes.get_legend_handles_labels()[0]
    if figure is None or not handles:
        return
    names = [str(handle.get_label()) for handle in handles]
    room, height = figure.get_figwidth() * figure.dpi, figure.get_figheight()
    for columns in range(min(_COLUMNS, len(handles)), 0, -1):
        legend = _legend(figure, handles, names, columns, size, title)
        if (width := legend.get_window_extent().width) <= room:
            break
        legend.remove()
    else:
        longest = max(map(len, names))
        names = [fill(name, max(8, int(longest * room / width * 0.9))) for name in names]
        legend = _legend(figure, handles, names, 1, size, title)
    figure.set_figheight(height + legend.get_window_extent().height / figure.dpi)


def _legend(
    figure: Figure, handles: Sequence[Artist], names: Sequence[str], columns: int, size: float, title: str | None
) -> Legend:
    where: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "handlelength": 3.0}
    return figure.legend(handles, names, fontsize=size, title=title, title_fontsize=size, **where)


def shorten(name: str, longest: int = _LONGEST_NAME) -> str:
    """Cut a name to what fits beside a figure, or to a length; a dollar sign would start mathematics."""
    return (name if len(name) <= longest else f"{name[: longest - 1]}…").replace("$", r"\$")


def slant(names: Sequence[str]) -> int:
    """Return the angle of names below a figure in degrees: long ones would overlap."""
    return 45 if max(map(len, names)) * len(names) > _LETTERS_IN_A_ROW else 0


def principal_plane(points: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Project points [n, d] onto their first two principal components: coordinates [n, 2], and the share of variance of each [2]."""
    centred = points.astype(np.float64) - points.mean(0, dtype=np.float64)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    coordinates, share = np.zeros((len(points), 2)), np.zeros(2)
    components = min(2, len(axes))
    coordinates[:, :components] = centred @ axes[:components].T
    total = (spread**2).sum()
    if total > 0:
        share[:components] = spread[:components] ** 2 / total
    return coordinates, share


PROJECTION_NAMES: Mapping[str, str] = {"PCA": "PCA", "TSNE": "t-SNE"}
"""Names of the projections of embeddings, for axes and titles."""

PROJECTED: Mapping[str, Callable[[NDArray[Any], str, Task], Figure]] = {
    name.lower(): partial(draw_projection, name) for name in PROJECTION_NAMES
}
"""How the embeddings of a layer that a federation names are drawn, by their projection."""

"""Figures for MLflow, drawn without a display."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

_MOST_LABELLED_CLASSES = 25
_LONGEST_NAME = 16
_LETTERS_IN_A_ROW = 40


def confusion(counts: NDArray[np.int64], title: str, classes: Sequence[str]) -> Figure:
    """Draw a confusion matrix, shape [C, C], rows are true classes: shade is the share of the row, text the count."""
    figure = Figure(figsize=(5.6, 5), layout="constrained")
    axes = figure.subplots()
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    if len(classes) <= _MOST_LABELLED_CLASSES:
        names = [shortened(name) for name in classes]
        axes.set_xticks(range(len(names)), names, rotation=_slant(names), ha="right" if _slant(names) else "center")
        axes.set_yticks(range(len(names)), names)
        for row, column in np.ndindex(counts.shape):
            colour = "white" if share[row, column] > 0.5 else "black"
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=colour, fontsize=8)
    axes.set(xlabel="predicted class", ylabel="true class", title=title)
    figure.colorbar(image, label="share of the true class")
    return figure


def embeddings(rows: NDArray[np.float32], title: str, classes: Sequence[str]) -> Figure:
    """Draw embeddings in the plane of their two principal components: colour is the true class, a cross a wrong prediction.

    `rows` has shape [n, 2 + d]: true class, predicted class, then the embedding (`anchorage.transport.messages.Report`).
    """
    true, predicted = rows[:, 0].astype(int), rows[:, 1].astype(int)
    plane, explained = principal_plane(rows[:, 2:])
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    right = true == predicted
    few = len(classes) <= 10
    style: dict[str, Any] = {"cmap": "tab10" if few else "turbo", "vmin": 0, "vmax": 9 if few else len(classes) - 1}
    dots = axes.scatter(plane[right, 0], plane[right, 1], c=true[right], s=12, **style)
    axes.scatter(plane[~right, 0], plane[~right, 1], c=true[~right], s=24, marker="x", linewidths=1, **style)
    axes.set(xlabel=f"component 1 ({explained[0]:.0%})", ylabel=f"component 2 ({explained[1]:.0%})", title=title)
    label = "true class (cross: predicted wrongly)"
    if len(classes) <= _MOST_LABELLED_CLASSES:
        present = np.unique(true)
        colours = dots.to_rgba(present)
        keys = [
            Line2D([], [], marker="o", linestyle="", color=tuple(colour), label=shortened(classes[c]))
            for c, colour in zip(present, colours, strict=True)
        ]
        figure.legend(handles=keys, title=label, loc="outside lower center", ncols=5, fontsize=8, title_fontsize=8)
    else:
        figure.colorbar(dots, label=label)
    return figure


def shortened(name: str) -> str:
    """Cut a class's name to what fits beside a figure."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _slant(names: Sequence[str]) -> int:
    """Return the angle of names below a figure in degrees: long ones would overlap."""
    return 45 if max(map(len, names)) * len(names) > _LETTERS_IN_A_ROW else 0


def principal_plane(points: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Project points [n, d] onto their first two principal components: coordinates [n, 2], and the share of variance of each [2]."""
    centred = points.astype(np.float64) - points.mean(0, dtype=np.float64)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    coordinates, share = np.zeros((len(points), 2)), np.zeros(2)
    kept = min(2, len(axes))
    coordinates[:, :kept] = centred @ axes[:kept].T
    total = (spread**2).sum()
    if total > 0:
        share[:kept] = spread[:kept] ** 2 / total
    return coordinates, share


DRAWN: Mapping[str, Callable[[NDArray[Any], str, Sequence[str]], Figure]] = {
    "confusion": confusion,
    "embeddings": embeddings,
}
"""How each array of a round's event is drawn."""

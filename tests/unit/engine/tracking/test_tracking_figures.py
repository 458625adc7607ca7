"""Figures: legends that are whole, axes that fit, and lines that coincide."""

from io import BytesIO

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from anchorage.api.model_card import ClassScores, Interval
from anchorage.engine.tracking.figures import embeddings, fit_shares, legend_below, line_style, render_image
from anchorage.pieces.task.classification import Classification
from anchorage.pieces.task.classification_charts import draw_confusion, draw_roc


def assert_whole(figure: Figure) -> None:
    """See that the only legend lies within the figure, below the axes."""
    (legend,) = figure.legends
    FigureCanvasAgg(figure).draw()
    box, axes = legend.get_window_extent(), figure.axes[0].get_tightbbox()
    width, height = figure.get_figwidth() * figure.dpi, figure.get_figheight() * figure.dpi
    assert axes is not None
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= min(height, axes.y0)


@pytest.mark.parametrize("lines", [1, 3, 12])
@pytest.mark.parametrize("length", [3, 40, 200])
def test_a_legend_is_whole_and_leaves_the_axes_their_room(length: int, lines: int) -> None:
    figure = Figure(figsize=(4.8, 3.4), layout="constrained")
    axes = figure.subplots()
    figure.draw_without_rendering()
    before = axes.get_window_extent().height
    for number in range(lines):
        axes.plot([0, 1], [0, number], label=f"{number} {'folder/' * 30}"[:length])
    legend_below(axes)
    assert_whole(figure)
    assert axes.get_window_extent().height > 0.9 * before
    names = "".join(text.get_text() for text in figure.legends[0].get_texts()).replace("\n", "")
    assert len(names) >= lines * min(length, 100), "names are wrapped, not cut"


def test_the_legends_of_classes_are_whole() -> None:
    names = [f"a class with a long name, number {number}" for number in range(20)]
    area = Interval(value=0.9, low=0.8, high=1.0)
    known = {"images": 9, "recall": 0.5, "specificity": 0.5, "precision": None, "auroc": area}
    figure = Figure(figsize=(4.8, 4.8), layout="constrained")
    draw_roc(figure.subplots(), [ClassScores(name=name, roc=((0, 0), (0.1, 1), (1, 1)), **known) for name in names])
    assert_whole(figure)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"{name} 0.900" for name in names]
    rows = np.column_stack([np.arange(20), np.arange(20), np.eye(20)]).astype(np.float32)
    assert_whole(embeddings(rows, "title", Classification.model_construct(classes=tuple(names))))


def colours_of(lines: int, points: int) -> set[tuple[int, ...]]:
    """Return the colours that are seen where lines coincide."""
    figure = Figure(figsize=(4, 3), dpi=300)
    axes = figure.add_axes((0, 0, 1, 1))
    for place in range(lines):
        axes.plot(np.linspace(0.1, 0.9, points), np.full(points, 0.5), **line_style(place, lines, points))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    colours = np.unique(np.asarray(canvas.buffer_rgba()).view("<u4"))  # a pixel's four bytes as one number sort fast
    return {tuple(map(int, pixel[:3])) for pixel in colours[:, None].view(np.uint8)}


@pytest.mark.parametrize("points", [5, 200])
@pytest.mark.parametrize("lines", [2, 3])
def test_lines_that_coincide_are_all_seen(lines: int, points: int) -> None:
    colours = colours_of(lines, points)
    for number in range(lines):
        assert tuple(round(255 * part) for part in to_rgb(f"C{number}")) in colours


def limits_of(*values: float) -> tuple[float, float]:
    axes = Figure().subplots()
    axes.plot(values)
    fit_shares(axes)
    return axes.get_ylim()


def test_the_axis_of_shares_fits_them_and_shows_nothing_beyond_0_and_1() -> None:
    low, high = limits_of(0.91, 0.95)
    assert 0.9 < low < 0.91 and 0.95 < high < 0.96
    assert limits_of(0.0, 0.5, float("nan"), 1.0) == (-0.02, 1.02)
    low, high = limits_of(0.2, 4.0)
    assert low < 0.2 and high > 4.0


def test_an_image_has_the_pixels_of_a_saved_figure() -> None:
    def draw() -> Figure:
        figure = Figure(figsize=(5.6, 5), layout="constrained")
        draw_confusion(figure.subplots(), np.diag(np.arange(1, 11)), [f"class {c}" for c in range(10)])
        return figure

    draw().savefig(content := BytesIO(), format="png")
    np.testing.assert_array_equal(np.asarray(render_image(draw())), np.asarray(Image.open(content)))

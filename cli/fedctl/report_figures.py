"""Figures of a run's report, as pictures that a page holds within itself."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from anchorage.api.card_text import HELD_OUT
from anchorage.api.errors import AnchorageError, commands
from anchorage.api.metric_names import PSEUDO_LABEL_ACCURACY
from anchorage.api.metrics import metric_order
from anchorage.api.model_card import Assessment
from anchorage.api.regular_files import read_regular
from anchorage.api.silo_state import SiloState
from anchorage.api.slot import read_piece
from fedctl.source import Round

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from anchorage.api.piece import expect
    from anchorage.engine.tracking import figures
    from anchorage.learning.model_hooks import TaskHooks
except ImportError as missing:
    raise AnchorageError(
        commands.PACKAGE_MISSING, f"{missing.name} is not installed; install it with: pip install 'anchorage[server]'"
    ) from missing

MOST_POINTS = 500
"""Rounds that a curve shows; of more, evenly chosen ones."""
MOST_LINES = 10
"""Silos with a line of their own; of more, their median and range are drawn."""
MOST_PICTURE_BYTES = 8 << 20
"""Largest picture of images that a page holds."""
_SIZE = (4.8, 3.4)
"""Inches: text stays readable where a picture is as wide as a telephone."""
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "anchorage",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the page."""

    title: str
    says: str
    """What it shows, for those who do not see it."""
    uri: str
    """The picture itself, SVG."""


def curves(rounds: Sequence[Round]) -> Iterator[Picture]:
    """Draw the metrics on the validation images (else those of the silos), and the losses, over the rounds; nothing where there are none."""
    names = list(dict.fromkeys(name for record in rounds for name in record["metrics"]))
    scores = [name for name in metric_order()[:-1] if name in names]
    losses = [name for name in names if name.endswith("loss")]
    for title, drawn in (("Scores of the model", scores), ("Losses", losses)):
        by_name = {name.replace("_", " "): _over_rounds(rounds, partial(_of_model, name)) for name in drawn}
        if lines := {name: line for name, line in by_name.items() if line}:
            yield render_picture(title, _last_values(lines), partial(_lines, lines=lines))


def silo_curves(rounds: Sequence[Round]) -> Iterator[Picture]:
    """Draw each silo's weight, share of accepted pseudo-labels and scores over the rounds, as far as they were reported."""
    reported = {name for record in rounds for silo in record["silos"] for name in silo["metrics"]}
    titles = {"weight": "Weight of each silo's update", "acceptance": "Accepted pseudo-labels at each silo"}
    titles |= {PSEUDO_LABEL_ACCURACY: "Right ones among the accepted pseudo-labels at each silo"}
    titles |= {HELD_OUT + name: f"{name.replace('_', ' ').capitalize()} at each silo" for name in metric_order()[:-1]}
    silos = list(dict.fromkeys(silo["name"] for record in rounds for silo in record["silos"]))
    for key, title in titles.items():
        if key == "weight" or key in reported:
            by_silo = {name: _over_rounds(rounds, partial(_of_silo, name, key)) for name in silos}
            if lines := {name: line for name, line in by_silo.items() if line}:
                draw = _lines if len(lines) <= MOST_LINES else _range
                yield render_picture(title, _last_values(lines), partial(draw, lines=lines))


def assessment_pictures(scored: Assessment, task: Mapping[str, Any]) -> Iterator[Picture]:
    """Draw what the task shows of an assessment, such as the confusion matrix; `task` is ``spec.task`` of the federation."""
    for chart in expect(read_piece("task", task), TaskHooks).charts(scored):
        yield render_picture(f"{chart.title}, {scored.part} images", chart.says, chart.draw, size=(4.8, 4.8))


def example_pictures(file: Path) -> Iterator[Picture]:
    """Yield the picture of validation images that the server left, where it did."""
    if file.is_file() and file.stat().st_size <= MOST_PICTURE_BYTES:
        says = "Some validation images of the federation: as they are, with the true classes, and with those that the last model predicts."
        title = "Images (above), true classes (middle), predicted classes (below)"
        yield Picture(title, says, f"data:image/png;base64,{base64.b64encode(read_regular(file)).decode()}")


def _over_rounds(rounds: Sequence[Round], value: Callable[[Round], float | None]) -> list[tuple[int, float]]:
    points = [(int(record["round"]), number) for record in rounds if (number := value(record)) is not None]
    step = -(-len(points) // MOST_POINTS) or 1
    return points[::step] + ([points[-1]] if points and (len(points) - 1) % step else [])


def _of_model(name: str, record: Round) -> float | None:
    number: float | None = record["metrics"].get(name)
    return number


def _of_silo(name: str, key: str, record: Round) -> float | None:
    """Return what a silo had in a round in which its update counted."""
    silo: Mapping[str, Any] | None = next((silo for silo in record["silos"] if silo["name"] == name), None)
    if silo is None or silo["state"] != SiloState.COUNTED:
        return None
    number: float | None = silo["weight"] if key == "weight" else silo["metrics"].get(key)
    return number


_Lines = Mapping[str, Sequence[tuple[int, float]]]


def _lines(axes: Axes, lines: _Lines) -> None:
    for place, (name, points) in enumerate(lines.items()):
        at, values = zip(*points, strict=True)
        style = figures.line_style(place, len(lines), len(points))
        axes.plot(at, values, label=figures.shorten(name, figures.LEGEND_NAME), **style)
    _label(axes)


def _range(axes: Axes, lines: _Lines) -> None:
    known = [dict(points) for points in lines.values()]
    rounds = sorted({at for points in known for at in points})
    spread = [np.percentile([line[at] for line in known if at in line], [0, 25, 50, 75, 100]) for at in rounds]
    least, low, middle, high, most = np.array(spread).T
    axes.fill_between(rounds, least, most, alpha=0.15, color="tab:blue", label=f"all {len(lines)} silos")
    axes.fill_between(rounds, low, high, alpha=0.3, color="tab:blue", label="middle half")
    axes.plot(rounds, middle, color="tab:blue", label="median")
    _label(axes)


def _label(axes: Axes) -> None:
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figures.fit_shares(axes)
    figures.legend_below(axes)


def _last_values(lines: _Lines) -> str:
    ends = [f"{name} {points[-1][1]:.3g}" for name, points in lines.items() if points][:MOST_LINES]
    more = f", and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
    return f"At the end: {', '.join(ends)}{more}."


def render_picture(title: str, says: str, draw: Callable[[Axes], None], size: tuple[float, float] = _SIZE) -> Picture:
    """Render what `draw` puts on axes of a size in inches as a picture that stands in a page; the same drawing gives the same bytes."""
    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        content = BytesIO()
        # `figure.savefig` would go over the figure twice
        FigureCanvasSVG(figure).print_svg(content, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    uri = f"data:image/svg+xml;base64,{base64.b64encode(content.getvalue()).decode()}"
    return Picture(title, says, uri)

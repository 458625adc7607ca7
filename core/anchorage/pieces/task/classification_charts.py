"""Pictures of how a model classifies: confusion matrix, reliability, ROC curves. matplotlib is only loaded where one is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorage.api.text import in_percent
from anchorage.learning.model_hooks import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from anchorage.api.model_card import Assessment, Calibration, ClassScores, FindingScores, Interval


@dataclass(frozen=True, slots=True)
class Curve:
    """A ROC curve by name, where no more is known than its points."""

    name: str
    roc: Sequence[tuple[float, float]]
    auroc: Interval | None = None


def assessment_charts(scored: Assessment) -> Iterator[Chart]:
    """Yield the pictures of an assessment, as far as it has what they show."""
    if (counts := scored.counts.get("confusion")) is not None:
        yield confusion_chart(np.array(counts), [class_scores.name for class_scores in scored.classes])
    if scored.calibration is not None:
        says = f"Expected calibration error {scored.calibration.expected_error:.3f}."
        yield Chart("reliability", "Reliability", says, partial(draw_reliability, calibration=scored.calibration))
    if any(class_scores.roc for class_scores in scored.classes):
        says = f"Mean area under the curves {scored.macro_auroc.value:.3f}." if scored.macro_auroc else ""
        yield Chart("roc", "ROC of each class against the rest", says, partial(draw_roc, classes=scored.classes))


def confusion_chart(counts: NDArray[Any], classes: Sequence[str]) -> Chart:
    """Return the picture of a confusion matrix, shape [C, C], rows are true classes."""
    from anchorage.engine.tracking.figures import shorten

    share = counts.diagonal() / np.maximum(counts.sum(1), 1)
    right = ", ".join(f"{shorten(name)} {in_percent(value)}%" for name, value in zip(classes, share, strict=True))
    says = f"Share of each true class that was predicted rightly: {right}."
    return Chart("confusion", "Confusion matrix", says, partial(draw_confusion, counts=counts, classes=classes))


def draw_confusion(axes: Axes, counts: NDArray[Any], classes: Sequence[str]) -> None:
    """Draw a confusion matrix: shade is the share of the row, text the count; names and counts are left out of many classes."""
    from anchorage.engine.tracking.figures import MOST_NAMED, shorten, slant

    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    if len(classes) <= MOST_NAMED:
        names = [shorten(name) for name in classes]
        axes.set_xticks(range(len(names)), names, rotation=slant(names), ha="right" if slant(names) else "center")
        axes.set_yticks(range(len(names)), names)
        for (row, column), count in np.ndenumerate(counts):
            colour, size = "white" if share[row, column] > 0.5 else "black", 8 if len(names) <= 12 else 5
            text = axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=size)
            text.set_in_layout(False)  # it is inside the axes
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.figure.colorbar(image, ax=axes, label="share of the true class")


def draw_reliability(axes: Axes, calibration: Calibration) -> None:
    """Draw how often predictions of each probability are right."""
    bins = [reliability_bin for reliability_bin in calibration.bins if reliability_bin.images]
    means, right = (
        [reliability_bin.confidence or 0.0 for reliability_bin in bins],
        [reliability_bin.accuracy or 0.0 for reliability_bin in bins],
    )
    widths = [reliability_bin.high - reliability_bin.low for reliability_bin in bins]
    lows = [reliability_bin.low for reliability_bin in bins]
    axes.bar(lows, right, widths, align="edge", color="tab:blue", alpha=0.3, edgecolor="tab:blue")
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", label="as often right as it says")
    share = np.array([reliability_bin.images for reliability_bin in bins]) / sum(
        reliability_bin.images for reliability_bin in bins
    )
    axes.scatter(means, right, 15 + 250 * share, color="tab:blue", label="this model (size: share of images)", zorder=3)
    axes.set(xlabel="probability of the predicted class", ylabel="predicted rightly", xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(loc="upper left", fontsize=9)


def draw_roc(axes: Axes, classes: Sequence[ClassScores | FindingScores | Curve]) -> None:
    """Draw the ROC curve of each class against the rest, or of each finding."""
    from matplotlib import colormaps

    from anchorage.engine.tracking.figures import LEGEND_NAME, MOST_NAMED, legend_below, line_style, shorten

    known = [scores for scores in classes if scores.roc]
    named = len(known) <= MOST_NAMED
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--")
    for place, scores in enumerate(known):
        area = f" {scores.auroc.value:.3f}" if scores.auroc else ""
        label = f"{shorten(scores.name, LEGEND_NAME)}{area}" if named else None
        colour = colormaps["tab10" if len(known) <= 10 else "turbo"](place if len(known) <= 10 else place / len(known))
        axes.plot(*zip(*scores.roc, strict=True), color=colour, label=label, **line_style(place, len(known)))
    axes.set(xlabel="1 - specificity", ylabel="recall (sensitivity)", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    if named:
        legend_below(axes, size=8, title="class and area")

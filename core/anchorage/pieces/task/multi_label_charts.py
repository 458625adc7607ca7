"""Pictures of how a model tells findings: a ROC curve of each, and whether probabilities are as often true as they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorage.learning.model_hooks import Chart
from anchorage.pieces.task.classification_charts import Curve, draw_roc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from anchorage.api.model_card import Assessment


def assessment_charts(scored: Assessment) -> Iterator[Chart]:
    """Yield the pictures of an assessment, as far as it has what they show."""
    if (calibration := scored.calibration) is not None:
        bins = [reliability_bin for reliability_bin in calibration.bins if reliability_bin.images]
        draw = partial(
            draw_reliability,
            means=[reliability_bin.confidence or 0.0 for reliability_bin in bins],
            shares=[reliability_bin.accuracy or 0.0 for reliability_bin in bins],
            counts=[reliability_bin.images for reliability_bin in bins],
        )
        yield Chart("reliability", "Reliability", f"Calibration error {calibration.expected_error:.3f}.", draw)
    with_area = [reliability_bin for reliability_bin in scored.findings if reliability_bin.roc]
    if with_area:
        macro = f"{scored.macro_auroc.value:.3f}" if scored.macro_auroc else "unknown"
        says = f"Mean area under the curves {macro}, of {len(with_area)} of {len(scored.findings)} findings."
        yield Chart("roc", "ROC of each finding", says, partial(draw_roc, classes=with_area))


def tally_charts(names: Sequence[str], counts: NDArray[np.int64]) -> Iterator[Chart]:
    """Yield reliability and ROC curves of a round, up to the width of a bin, of histograms [2, L, bins]."""
    from anchorage.algorithms.multi_label_metrics import auroc, counts_of

    known_counts, bins = counts.sum(1), counts.shape[2]
    total = known_counts.sum(0)
    some = np.flatnonzero(total)
    draw = partial(
        draw_reliability,
        means=list((some + 0.5) / bins),
        shares=list(known_counts[1, some] / total[some]),
        counts=list(total[some]),
    )
    yield Chart("reliability", "Reliability", "How often findings are present of each probability.", draw)
    curves = []
    for place, name in enumerate(names):
        if (area := auroc(counts_of(counts, place))) is not None:
            above, below = (np.append(0, each.cumsum() / each.sum()) for each in counts_of(counts, place))
            points = tuple(zip(below.tolist(), above.tolist(), strict=True))
            curves.append(Curve(f"{name} {area:.3f}", points))
    if curves:
        says = f"Areas under the curves of {len(curves)} of {len(names)} findings."
        yield Chart("roc", "ROC of each finding", says, partial(draw_roc, classes=curves))


def draw_reliability(axes: Axes, means: Sequence[float], shares: Sequence[float], counts: Sequence[Any]) -> None:
    """Draw how often findings of each mean probability are present; sizes are shares of the entries."""
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", label="as often as it says")
    share = np.array(counts) / max(sum(counts), 1)
    axes.plot(means, shares, color="tab:blue", alpha=0.5)
    axes.scatter(
        means, shares, 15 + 250 * share, color="tab:blue", label="this model (size: share of entries)", zorder=3
    )
    axes.set(xlabel="probability of a finding", ylabel="finding is present", xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(loc="upper left", fontsize=9)

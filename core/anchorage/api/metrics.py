"""Metrics of a model: their order, which one is shown first, which direction is better, and which round is the best."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

ORDER = ("balanced_accuracy", "accuracy", "macro_auc", "loss")
"""Metrics that people look at, the most telling first: classes of medical images are rarely of one size."""

ACCEPTANCE = "acceptance"
"""Metric of a silo: share of its unlabelled images whose pseudo-labels were accepted, 0 to 1."""
PSEUDO_LABEL_ACCURACY = "pseudo_label_accuracy"
"""Metric of a silo in a simulation: share of its accepted pseudo-labels that are right, 0 to 1."""
EPSILON = "epsilon"
"""Metric of a silo with a privacy budget, or of a round with noise at the server: privacy loss ε so far, at its `delta`."""

NOISE_RATIO = "noise_ratio"
"""Metric of a silo whose policy adds relative noise: norm of the noise in an array of its update, as a multiple of the norm of the array's change."""

_SHOWN = 4


def ordered(names: Iterable[str]) -> list[str]:
    """Return names in the order in which they are shown: those of `ORDER` first, the others as they come."""
    given = list(names)
    return [name for name in ORDER if name in given] + [name for name in given if name not in ORDER]


def shown_first(names: Collection[str]) -> Sequence[str]:
    """Return the few names that there is room for in one line."""
    known = [name for name in (*ORDER, EPSILON) if name in names]
    return known or list(names)[:_SHOWN]


def headline(values: Mapping[str, float]) -> str:
    """Write the first metric with its value, such as ``balanced_accuracy 0.969``; nothing where there is none."""
    return next((f"{name} {values[name]:.3f}" for name in ordered(values)), "")


def lower_is_better(name: str) -> bool:
    """Say whether a smaller value of a metric is the better one, as of every loss."""
    return name.endswith("loss")


def score(values: Mapping[str, float]) -> tuple[int, float] | None:
    """Return what rounds are compared by, greater is better: the first metric of `ORDER` that is a number; None where there is none.

    The best of several rounds is the one with the greatest score, of equals the earliest.
    """
    found = best_metric(values)
    if found is None:
        return None
    name, value = found
    return -ORDER.index(name), -value if lower_is_better(name) else value


def best_metric(values: Mapping[str, float | None]) -> tuple[str, float] | None:
    """Return the first metric of `ORDER` that is a number, with its value; None where there is none."""
    for name in ORDER:
        value = values.get(name)
        if value is not None and math.isfinite(value):
            return name, value
    return None

"""Metrics of a model, as the tasks declare them: their order, which one is shown first, which direction is better, and which round is the best."""

import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

from anchorage.api.metric_names import EPSILON, LOSS
from anchorage.api.piece import PIECES
from anchorage.api.task import MetricName, Task

_SHOWN = 4


def metric_order() -> Sequence[str]:
    """Return the metrics that people look at, the most telling of each task first, `LOSS` last; of the tasks that are loaded.

    Whoever writes records of rounds has loaded them and keeps this order. Commands that only show records load none: they find nothing here,
    and show metrics as they are recorded.
    """
    names = tuple(dict.fromkeys(metric.name for task in _tasks() for metric in task.metrics))
    return (*names, LOSS) if names else ()


def sort_metrics(names: Iterable[str]) -> list[str]:
    """Return names in the order in which they are shown: those of `metric_order` first, the others as they come."""
    known_names, order = list(names), metric_order()
    return [name for name in order if name in known_names] + [name for name in known_names if name not in order]


def in_order(values: Mapping[str, float]) -> dict[str, float]:
    """Return metrics in the order of `sort_metrics`."""
    return {name: values[name] for name in sort_metrics(values)}


def shown_first(names: Collection[str]) -> Sequence[str]:
    """Return the few names that there is room for in one line."""
    if order := metric_order():
        known = [name for name in (*order, EPSILON) if name in names]
        return known or list(names)[:_SHOWN]
    recorded = list(names)
    few = recorded[: recorded.index(LOSS) + 1] if LOSS in recorded else recorded
    return [*few[:_SHOWN], *([EPSILON] if EPSILON in recorded[_SHOWN:] else [])]


def headline(values: Mapping[str, float]) -> str:
    """Write the first metric with its value, such as ``balanced_accuracy 0.969``; nothing where there is none."""
    return next((f"{name} {values[name]:.3f}" for name in sort_metrics(values)), "")


def lower_is_better(name: str) -> bool:
    """Return whether a smaller value of a metric is the better one, as of every loss, or as a task says."""
    metric = _metric_called(name)
    return name.endswith(LOSS) or (metric is not None and not metric.higher_is_better)


def improvement(name: str, value: float, other: float) -> float:
    """Return by how much a metric's value is better than another one, as a share: of 1, or of the other one where the metric is no share."""
    metric = _metric_called(name)
    better = other - value if lower_is_better(name) else value - other
    return better if metric is None or metric.is_share else better / max(abs(other), sys.float_info.min)


def in_points(name: str) -> bool:
    """Return whether people speak of a metric's differences in points, and not in percent."""
    metric = _metric_called(name)
    return metric is None or metric.is_share


def _metric_called(name: str) -> MetricName | None:
    return next((metric for task in _tasks() for metric in task.metrics if metric.name == name), None)


def _tasks() -> list[type[Task]]:
    return [piece for piece in PIECES if issubclass(piece, Task)]


def score(values: Mapping[str, float]) -> tuple[int, float] | None:
    """Return what rounds are compared by, greater is better: the first of `metric_order` that is a number; None where there is none.

    The best of several rounds is the one with the greatest score, of equals the earliest.
    """
    metric = best_metric(values)
    if metric is None:
        return None
    name, value = metric
    return -metric_order().index(name), -value if lower_is_better(name) else value


def best_metric(values: Mapping[str, float | None]) -> tuple[str, float] | None:
    """Return the first of `metric_order` that is a number, with its value; where no task is loaded, the first as they come; None without any."""
    for name in metric_order() or values:
        value = values.get(name)
        if value is not None and math.isfinite(value):
            return name, value
    return None

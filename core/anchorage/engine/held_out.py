"""What silos say of a model on images of theirs that nobody trains on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.aggregation.confusion import balanced_accuracy, micro_f1
from anchorage.engine.interfaces import SiloRecord
from anchorage.transport.messages import Report

Confusions = Mapping[str, NDArray[np.int64]]
"""Confusion matrices by silo, int64 [C, C], rows are true classes."""

_NAMES = ("balanced_accuracy", "accuracy")
"""What a confusion matrix is scored by."""


def is_sound(confusion: NDArray[np.int64], num_classes: int, most: int) -> bool:
    """Say whether counts can be those of a silo with so many images at most, and of one at least."""
    shape = (num_classes, num_classes)
    return confusion.shape == shape and bool((confusion >= 0).all()) and 0 < int(confusion.sum()) <= most


def pooled(confusions: Confusions) -> Report:
    """Return the report over the images of all silos together."""
    counts = np.sum(list(confusions.values()), axis=0)
    return Report(_metrics(counts), counts)


def over_all(confusions: Confusions) -> dict[str, float]:
    """Return the metrics over the images of all silos, ``silos_accuracy`` and its like, and those of the silo with the
    least balanced accuracy, ``worst_silo_accuracy``.
    """
    if not confusions:
        return {}
    worst = min(map(_metrics, confusions.values()), key=lambda metrics: metrics["balanced_accuracy"])
    found = {f"silos_{name}": value for name, value in pooled(confusions).metrics.items()}
    return found | {f"worst_silo_{name}": value for name, value in worst.items()}


def is_pooled(metrics: Mapping[str, float | None]) -> bool:
    """Say whether a round was scored on the silos' images alone, so that its metrics are those over all silos."""
    return all(f"silos_{name}" in metrics and metrics[f"silos_{name}"] == metrics.get(name) for name in _NAMES)


def with_scores(records: Sequence[SiloRecord], confusions: Confusions) -> tuple[SiloRecord, ...]:
    """Return records whose metrics have what their silos said, ``held_out_accuracy`` and its like."""
    return tuple(
        replace(record, metrics={**record.metrics, **_named(confusions[record.name])})
        if record.name in confusions
        else record
        for record in records
    )


def _named(counts: NDArray[np.int64]) -> dict[str, float]:
    return {f"held_out_{name}": value for name, value in {**_metrics(counts), "images": float(counts.sum())}.items()}


def _metrics(counts: NDArray[np.int64]) -> dict[str, float]:
    return dict(zip(_NAMES, (balanced_accuracy(counts), micro_f1(counts)), strict=True))

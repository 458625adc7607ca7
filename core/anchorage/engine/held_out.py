"""What silos say of a model on images of theirs that nobody trains on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anchorage.api.metrics import score
from anchorage.api.task import Tally, Task, pool_tallies
from anchorage.engine.interfaces import SiloRecord
from anchorage.transport.messages import Report

Tallies = Mapping[str, Tally]
"""Tallies by silo."""

SILOS = "silos_"
"""What names of metrics begin with that are over the images of all silos together."""


def report_of(task: Task, tallies: Tallies) -> Report:
    """Return the report over the images of all silos together."""
    tally = pool_tallies(list(tallies.values()))
    return Report(task.scores(tally), tally)


def over_all(task: Task, tallies: Tallies) -> dict[str, float]:
    """Return the metrics over the images of all silos, ``silos_accuracy`` and its like, and those of the silo with the worst score,
    ``worst_silo_accuracy``.
    """
    if not tallies:
        return {}
    worst = min(map(task.scores, tallies.values()), key=lambda metrics: score(metrics) or (0, 0.0))
    overall = {f"{SILOS}{name}": value for name, value in report_of(task, tallies).metrics.items()}
    return overall | {f"worst_silo_{name}": value for name, value in worst.items()}


def is_pooled(metrics: Mapping[str, float | None]) -> bool:
    """Return whether a round was scored on the silos' images alone, so that its metrics are those over all silos."""
    over_silos = {name.removeprefix(SILOS): value for name, value in metrics.items() if name.startswith(SILOS)}
    return bool(over_silos) and all(metrics.get(name) == value for name, value in over_silos.items())


def with_scores(task: Task, records: Sequence[SiloRecord], tallies: Tallies) -> tuple[SiloRecord, ...]:
    """Return records whose metrics have what their silos said, ``held_out_accuracy`` and its like."""
    return tuple(
        replace(record, metrics={**record.metrics, **_held_out(task, tallies[record.name])})
        if record.name in tallies
        else record
        for record in records
    )


def _held_out(task: Task, tally: Tally) -> dict[str, float]:
    metrics = {**task.scores(tally), "images": float(task.images(tally))}
    return {f"held_out_{name}": value for name, value in metrics.items()}

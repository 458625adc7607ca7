"""``fedctl plan``: what a federation will cost, and what will leave each hospital, before it starts."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from anchorage.api.fact import Fact
from anchorage.api.files import Study
from anchorage.methods import resolve, validate_study
from anchorage.methods.composition import parts_of, strategies_of
from anchorage.simulation.forecast import Forecast, RoundsForecast, forecast
from fedctl.output import Format, emit, people
from fedctl.plan_view import draw
from fedctl.plan_words import describe_disclosure, leaving
from fedctl.validation import warn_about

CHECKPOINTS = 5
"""Checkpoint files on the server's disk: of the last two rounds, of the best one and the best one before, and one to write over."""


def plan_federation(
    file: Path,
    data_root: Path | None,
    overrides: Sequence[str],
    output: Format,
    *,
    trial: bool,
    link: float | None,
    silos: int | None = None,
) -> None:
    """Print a forecast.

    Parameters
    ----------
    file : Path
        The federation's documents.
    data_root : Path or None
        Folder that claims name folders of; None: the file's own.
    overrides : sequence of str
        ``path=value`` for the documents.
    output : Format
        How to print.
    trial : bool
        Whether to read images and time a few steps of training; else time and memory are left out.
    link : float or None
        Rate of every silo's line in Mbit/s, each way; None: transfers are left out.
    silos : int or None
        How many silos are made of those in the file; None takes these as they are.

    Raises
    ------
    AnchorageError
        The documents, images or initial weights cannot be used.
    """
    study = validate_study(file, overrides, silos)
    warn_about(study)
    if trial and output.for_people:
        typer.echo(
            "trying a few steps, which takes a minute at most on an idle machine; --no-trial does without", err=True
        )
    with tempfile.TemporaryDirectory(prefix="fedctl-plan-") as state:
        expected_cost = forecast(study, (data_root or file.parent).resolve(), Path(state), trial=trial)
    document = plan_document(study, expected_cost, trial=trial, link=link)
    if output.for_people:
        people().print(draw(document))
    else:
        emit(document, output)


def plan_document(study: Study, expected_cost: Forecast, *, trial: bool, link: float | None = None) -> dict[str, Any]:
    """Return a forecast as JSON values."""
    spec = study.federation.spec
    return {
        "federation": study.federation.metadata.name,
        "method": spec.method.name,
        "network": spec.model.network,
        "mode": spec.protocol.mode,
        "rounds": spec.rounds,
        "silos": len(study.silos),
        "bytes": {
            "up": expected_cost.bytes_up,
            "down": expected_cost.bytes_down,
            "model": expected_cost.down,
            "update": expected_cost.up,
            "rounds": [_rounds(part) for part in expected_cost.rounds],
            "rehearsedRounds": expected_cost.rehearsed,
        },
        "time": _time(study, expected_cost) if trial else None,
        "link": _link(study, expected_cost, link, timed=trial and not expected_cost.unknown)
        if link is not None
        else None,
        "memory": _memory(expected_cost) if trial else None,
        "disk": _disk(study, expected_cost),
        "leaves": leaving(study, expected_cost.up),
        "learnt": describe_disclosure(resolve(spec.method, spec.task)),
        "imagesUnknown": list(expected_cost.unknown),
        "notes": list(reservations(study, expected_cost)),
    }


def _rounds(part: RoundsForecast) -> dict[str, Any]:
    silos = max(part.silos, 1.0)
    return {
        "method": part.method,
        "kind": "first" if part.first else "scored" if part.scored else "other",
        "count": part.count,
        "silos": part.silos,
        "up": round(part.bytes_up),
        "down": round(part.bytes_down),
        "upPerSilo": round(part.bytes_up / silos),
        "downPerSilo": round(part.bytes_down / silos),
    }


def _time(study: Study, expected_cost: Forecast) -> dict[str, Any]:
    """Return seconds on this machine."""
    cores, silos = os.cpu_count() or 1, len(study.silos)
    waiting = study.federation.spec.protocol.mode == "Synchronous"
    usual = max(expected_cost.rounds, key=lambda part: part.count)
    loading = expected_cost.silo_memory.loading_seconds if expected_cost.silo_memory else 0.0
    at_once = min(cores, silos)
    return {
        "slowestSiloSecondsPerRound": usual.slowest_seconds,
        "serverSecondsPerRound": usual.server_seconds,
        "secondsBeforeRound1": expected_cost.initial_seconds,
        "oneAfterAnother": expected_cost.seconds(1, waiting=waiting),
        "onThisMachine": expected_cost.seconds(at_once, waiting=waiting) + loading * -(-silos // at_once),
        "silosAtOnce": at_once,
        "machineForEverySilo": expected_cost.seconds(silos, waiting=waiting) + loading,
    }


def _link(study: Study, expected_cost: Forecast, megabits: float, *, timed: bool) -> dict[str, Any]:
    """Return seconds of transfers where every silo has a line of its own of this rate, each way, and the server's carries all of them.

    With `timed`, the slowest silo's training on this machine counts against the deadline, too.
    """
    spec, second = study.federation.spec, megabits * 1e6 / 8
    parts = parts_of(spec)
    barriers = {
        part.method.name for part, strategy in zip(parts, strategies_of(spec), strict=True) if strategy.weigher.barrier
    }
    rows, longest = [], 0.0
    for part in expected_cost.rounds:
        row = _rounds(part)
        down, up = row["downPerSilo"] / second, row["upPerSilo"] / second
        before = down + (part.slowest_seconds if timed else 0.0)
        longest = max(longest, *((before, up) if part.method in barriers else (before + up,)))  # uploads have their own
        rows.append({key: row[key] for key in ("method", "kind", "count")} | {"downSeconds": down, "upSeconds": up})
    deadline = spec.protocol.round_deadline_seconds
    at_once = len(study.silos) if spec.protocol.mode == "Asynchronous" else 1
    return {
        "megabitsPerSecond": megabits,
        "encoding": {part.method.name: part.method.encoding.name for part in parts},
        "modelEncoding": spec.protocol.model_encoding,
        "rounds": rows,
        "seconds": sum(row["count"] * (row["downSeconds"] + row["upSeconds"]) for row in rows) / at_once,
        "deadlineSeconds": deadline,
        "longestSeconds": longest,
        "withTraining": timed,
        "inTime": False if longest > deadline else True if timed else None,
    }


def _memory(expected_cost: Forecast) -> dict[str, Any]:
    server, silo = expected_cost.server_memory, expected_cost.silo_memory
    return {"server": server.nbytes if server else None, "silo": silo.nbytes if silo else None}


def _disk(study: Study, expected_cost: Forecast) -> dict[str, Any]:
    """Return bytes on disk, without logs and MLflow's store."""
    spec, cohort = study.federation.spec, max(round(part.silos) for part in expected_cost.rounds)
    keeps = any(strategy.keeps_updates for strategy in strategies_of(spec))
    silos, asynchronous = len(study.silos), spec.protocol.mode == "Asynchronous"
    slots = (
        3 * silos if keeps else 2 * silos + 1 if asynchronous else cohort
    )  # those that the last commit replaced stay
    received = expected_cost.down + expected_cost.trials.behind
    server = {
        "checkpoints": CHECKPOINTS * expected_cost.down,
        "spool": slots * expected_cost.up,
        "models": 2 * expected_cost.down,
        "auxiliaryData": expected_cost.trials.behind,
    }
    silo = {
        "received": received * (2 if expected_cost.trials.evaluates else 1),
        "update": expected_cost.up,
        "kept": max(expected_cost.state_bytes.values(), default=0),
    }
    return {"server": {**server, "all": sum(server.values())}, "silo": {**silo, "all": sum(silo.values())}}


def reservations(study: Study, expected_cost: Forecast) -> Iterator[str]:
    """Yield how far a forecast can be relied upon, a sentence each."""
    spec = study.federation.spec
    methods = [part.method for part in parts_of(spec)]
    if expected_cost.unknown and any(
        array.large and array.up for m in methods for p in m.pieces() for array in p.auxiliary()
    ):
        yield "How large the pool of images becomes depends on how many images the silos have, which is not known here."
    if any(strategy.sparse_updates for strategy in strategies_of(spec)):
        yield "Updates are sent as packed differences from the model; how far they can be packed depends on the training."
    if any(Fact.PSEUDO_LABELS in method.facts() for method in methods):
        yield "A silo that accepts no pseudo-label in a round sends no update in it, so fewer bytes may go up."
    if spec.task.gives_maps:
        yield (
            "A hospital whose policy has privacyBudget.dpSgd refuses this task: DP-SGD hides each image by its own loss, and Dice is of a batch of "
            "images together."
        )
    several = [silo.metadata.name for silo in study.silos if silo.spec.managed and silo.spec.managed.devices > 1]
    if several and not spec.task.mean_over_images:
        yield (
            f"{', '.join(several)} will train on the first of several devices: the loss of the task {spec.task.name} is of a batch as a whole, which "
            "cannot be divided."
        )
    if spec.protocol.mode == "Asynchronous":
        yield (
            "Silos are taken to be equally fast per step; which of them commits how often is only known in the run, and at "
            "its end an update of each may be on its way, counted or not."
        )
    if any(method.local.cycle for method in methods):
        yield "Silos are taken to train for their longest cycle; most stop earlier."
    if expected_cost.rehearsed < spec.rounds:
        yield f"{expected_cost.rehearsed} of {spec.rounds} rounds were rehearsed; the others are taken to be like them."

"""``fedctl status``, ``silos``, ``rounds``, ``events`` and ``logs``: shows the state and the history of a federation."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from heapq import merge
from operator import itemgetter
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, time
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.metrics import shown_first, sort_metrics
from anchorage.api.silo_state import SiloState
from anchorage.api.status import ConditionType, end_of, find_condition, seconds_of
from anchorage.api.text import in_percent, printable
from fedctl.output import Format, amount, duration, people, plain_table, show
from fedctl.source import Event, Observation, Source
from fedctl.view import format_transferred, metrics_line

TOGETHER_SECONDS = 0.2
"""Lines of several followed logs that come within this time are put in order."""
UNSEEN_SECONDS = 900.0
"""Age of the status of a federation that trains from which on its operator is taken to be away; it writes every five minutes at least."""
ROOMY = 90
"""Columns from which on the table of rounds has a fourth metric."""


def show_status(source: Source, output: Format, watch: bool) -> None:
    """Print the federation with its status."""
    if output.for_people:
        show(source.observe, lambda observation: _status_table(observation, output is Format.WIDE), output, watch=watch)
    else:
        show(lambda: source.observe().document, str, output, watch=watch)


def _status_table(observation: Observation, wide: bool) -> RenderableType:
    status, spec = observation.status, observation.document["spec"]
    true = end_of(status.conditions)
    refused = next((c for c in status.conditions if c.type == ConditionType.ACCEPTED and c.status == "False"), None)
    ready = find_condition(status.conditions, ConditionType.READY)
    waiting = next((c for c in status.conditions if c.type == ConditionType.QUORUM_MET and c.status == "False"), None)
    state = true or refused or (waiting if observation.live else None) or ready
    columns = ["federation", "state", "reason", "round", "silos", "method"]
    cells = [
        observation.document["metadata"]["name"],
        f"{state.type}={state.status}" if state else "Unknown",
        state.reason if state else "",
        f"{status.round}/{status.rounds or spec['rounds']}",
        status.silos_summary or f"{status.connected_silos}/{len(status.silos)}",
        spec["method"]["name"],
    ]
    if wide:
        columns += ["step", "moved", "model", "tracking run"]
        cells += [
            status.step,
            format_transferred(status),
            status.model.path if status.model else "",
            status.tracking.run_id,
        ]
    table = plain_table(*columns)
    table.add_row(*cells)
    lines: list[RenderableType] = [table]
    if unseen := _unseen(observation, time()):
        lines.append(Text(unseen, style="yellow"))
    if state and state.message:
        lines.append(Text(state.message, style="yellow"))
    if status.metrics:
        lines.append(Text(metrics_line(status)))
    tracked = find_condition(status.conditions, ConditionType.TRACKED)
    if tracked is not None and tracked.status == "False":
        lines.append(Text(f"MLflow: {tracked.reason}, {tracked.message}", style="yellow"))
    return Group(*lines)


def _unseen(observation: Observation, now: float) -> str:
    """Say that the operator of a cluster has not looked at what there is now, so that the figures are old; empty where it has."""
    generation, status = observation.document["metadata"].get("generation"), observation.status
    if generation is None:  # no cluster
        return ""
    look = "`kubectl get deployments -A -l app.kubernetes.io/name=anchorage-operator` shows whether it runs"
    written = status.last_updated_time
    if written is None or not status.observed_generation:
        return f"no operator has looked at this yet; {look}"
    runs = observation.live and end_of(status.conditions) is None
    if generation > status.observed_generation or (runs and now - seconds_of(written) > UNSEEN_SECONDS):
        counted = f"(generation {generation}, seen {status.observed_generation})"
        return f"the operator has not looked at this since {written} {counted}; {look}"
    return ""


def show_silos(source: Source, output: Format, watch: bool) -> None:
    """Print one line per silo."""
    show(lambda: list(source.silos()), lambda rows: _silos_table(rows, output is Format.WIDE), output, watch=watch)


def _silos_table(silos: Sequence[Any], wide: bool) -> RenderableType:
    columns = ["silo", "connected", "state", "progress", "images", "weight", "accepted"]
    in_cluster = wide and any("role" in silo for silo in silos)
    if wide:
        columns += ["epsilon", "packages", "last seen"]
        columns += [*(("role", "approved") if in_cluster else ()), "certificate ends"]
    table = plain_table(*columns, "failure", right=("progress", "images", "weight", "accepted", "epsilon"))
    for silo in silos:
        cells = [
            silo["name"],
            "yes" if silo["connected"] else "no",
            silo["state"],
            _progress(silo),
            str(silo["samples"]),
            f"{float(silo['weight']):.3f}",
            f"{in_percent(float(share))}%" if (share := silo.get("acceptance")) else "",
        ]
        if wide:
            cells += [silo.get("epsilon", ""), ", ".join(silo.get("packages", ())), silo["lastSeenTime"] or ""]
        if in_cluster:
            cells += [silo["role"], silo["approved"]]
        if wide:
            cells.append((silo["certificate"] or {}).get("notAfter") or "")
        table.add_row(*cells, f"{silo['code']} {silo['message']}".strip())
    return table


def _progress(silo: Mapping[str, Any]) -> str:
    """Format how far a silo's task is, or the pace of its model or update while that travels."""
    if silo["rate"]:
        seconds_left = silo["secondsLeft"]
        return f"{amount(silo['rate'])}/s" + ("" if seconds_left is None else f", {duration(seconds_left)} left")
    return f"{silo['progress']} %" if silo["task"] else ""


def show_rounds(source: Source, output: Format, watch: bool) -> None:
    """Print one line per committed round."""
    show(
        lambda: list(source.rounds()),
        lambda rounds: _rounds_table(rounds, output is Format.WIDE),
        output,
        watch=watch,
    )


def _rounds_table(rounds: Sequence[Any], wide: bool) -> RenderableType:
    names_by_order = sort_metrics(dict.fromkeys(name for record in rounds for name in record["metrics"]))
    names = names_by_order if wide else shown_first(names_by_order)[: 3 if people().width < ROOMY else None]
    table = plain_table(
        "round",
        "committed",
        "took",
        "silos",
        "up",
        "down",
        *(n.replace("_", " ") for n in names),
        right=("round", "took", "silos", "up", "down", *(n.replace("_", " ") for n in names)),
    )
    for record in rounds:
        counted = sum(silo["state"] == SiloState.COUNTED for silo in record["silos"])
        took = sum(value or 0.0 for value in record["seconds"].values())
        values = [record["metrics"].get(name) for name in names]
        table.add_row(
            str(record["round"]),
            datetime.fromtimestamp(record["time"], UTC).astimezone().strftime("%H:%M:%S"),
            duration(took) if record["seconds"] else "",
            f"{counted}/{len(record['silos'])}" if record["silos"] else "",
            amount(record["bytesUp"]),
            amount(record["bytesDown"]),
            *("" if value is None else f"{value:.4g}" for value in values),
        )
        for silo in record["silos"] if wide else ():
            if silo["code"]:
                table.add_row("", "", "", f"{silo['name']}: {silo['code']} {silo['message']}")
    return table


def show_events(source: Source, output: Format, watch: bool) -> None:
    """Print one line per event, the latest last."""
    show(lambda: [asdict(event) for event in source.events()], _events_table, output, watch=watch)


def _events_table(events: Sequence[Any]) -> RenderableType:
    table = plain_table("time", "type", "reason", "about", "message")
    for values in events:
        event = Event(**values)
        message = f"{event.message} ({event.count} times)" if event.count > 1 else event.message
        style = "yellow" if event.type == "Warning" else None
        table.add_row(event.time, event.type, event.reason, event.about, message, style=style)
    return table


def show_logs(source: Source, process: str | None, lines: int, follow: bool) -> None:
    """Print the end of one process's log, or of all logs.

    Parameters
    ----------
    source : Source
        The federation.
    process : str or None
        ``server`` or a silo's name; None takes every log that can be read here.
    lines : int
        Lines from the end of each log.
    follow : bool
        Go on with what is added, until Ctrl-C.

    Raises
    ------
    AnchorageError
        There is no such log.
    """
    chosen = [process] if process is not None else list(source.processes())
    if not chosen:
        raise AnchorageError(commands.NO_RUN_HERE, "no process has written a log yet")
    logs = {name: partial(source.log, name, lines, follow=follow) for name in chosen}
    for name, line in interleave(logs) if follow else in_order(logs):
        if not isinstance(line, AnchorageError):
            typer.echo(printable(_readable(line, name if len(chosen) > 1 else "")))
        elif len(chosen) > 1:  # one log of several that cannot be read keeps nobody from the others
            typer.echo(f"{name}: {line}", err=True)
        else:
            raise line


Log = Callable[[], Iterator[str]]
Line = tuple[str, str | AnchorageError]
"""A process, and a line of its log or why that cannot be read on."""


def in_order(logs: Mapping[str, Log]) -> Iterator[Line]:
    """Yield the lines of several logs in the order of their times; a line without one, as of a traceback, follows the line before it."""
    for _, name, line in merge(*(_timed_lines(name, log) for name, log in logs.items()), key=itemgetter(0)):
        yield name, line


def _timed_lines(name: str, log: Log) -> Iterator[tuple[str, *Line]]:
    """Yield a log's lines with times that never decrease (RFC 3339 in UTC), then why it cannot be read on."""
    time = ""
    try:
        for line in log():
            time = max(time, _time_of(line))
            yield time, name, line
    except AnchorageError as error:
        yield time, name, error


def _time_of(line: str) -> str:
    try:
        return str(json.loads(line)["time"])
    except (ValueError, KeyError, TypeError):
        return ""


def interleave(logs: Mapping[str, Log]) -> Iterator[Line]:
    """Yield the lines of several logs as they arrive, until all logs have ended; what arrives at once is put in the order of its times."""
    lines_queue: SimpleQueue[tuple[str, *Line] | None] = SimpleQueue()

    def pump(name: str, log: Log) -> None:
        for line in _timed_lines(name, log):
            lines_queue.put(line)
        lines_queue.put(None)

    for name, log in logs.items():
        Thread(target=pump, args=(name, log), daemon=True).start()
    open_logs = len(logs)
    while open_logs:
        lines = [lines_queue.get()]
        end = monotonic() + TOGETHER_SECONDS
        with suppress(Empty):
            while (seconds := end - monotonic()) > 0:
                lines.append(lines_queue.get(timeout=seconds))
        open_logs -= lines.count(None)
        for _, name, line in sorted(filter(None, lines), key=itemgetter(0)):
            yield name, line


def _readable(line: str, process: str) -> str:
    """Format a JSON log line for people; other lines are unchanged."""
    prefix = f"{process}: " if process else ""
    try:
        values = json.loads(line)
        head = f"{values.pop('time')} {values.pop('level')} {values.pop('message')}"
    except (ValueError, KeyError, AttributeError, TypeError):
        return prefix + line
    values.pop("logger", None)
    return " ".join([prefix + head, *(f"{name}={value}" for name, value in values.items())])

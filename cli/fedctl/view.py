"""Live output of a running federation: a live table on a terminal, plain lines elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anchorage.api.metrics import shown_first
from anchorage.api.silo_state import SiloState
from anchorage.api.status import ConditionType, FederationStatus
from fedctl.output import BAR, amount, console_on, duration, plain_table

STORING = "storing the model, and sending the results to MLflow"


@dataclass(frozen=True, slots=True)
class Picture:
    """The state of a run at one time."""

    federation: str
    method: str
    """What is run."""
    status: FederationStatus
    """What the server says."""
    processes: Mapping[str, str] = field(default_factory=dict)
    """State of every process as the runner sees it: ``starting``, ``running``, ``restarting``, ``ended``."""
    elapsed_seconds: float = 0.0
    """Since this start."""
    remaining_seconds: float | None = None
    """Estimated from the rounds of this start; None while none is committed."""


class View(Protocol):
    """Shows a run; used as a context manager."""

    def __enter__(self) -> "View": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, picture: Picture) -> None:
        """Show the run as it is now."""

    def say(self, line: str) -> None:
        """Print a permanent message."""


class LiveView:
    """A live display that is redrawn in place.

    Parameters
    ----------
    console : Console
        A terminal.
    """

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, picture: Picture) -> None:
        """Redraw the current state of the run."""
        self._live.update(draw(picture))

    def say(self, line: str) -> None:
        """Print a line above the live display."""
        self._live.console.print(Text(line))


class LineView:
    """Prints one line per change.

    Parameters
    ----------
    stream : file
        Where the lines go.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._round = -1
        self._scores = ""
        self._connected: frozenset[str] = frozenset()
        self._waiting = ""
        self._stored = False

    def __enter__(self) -> "LineView":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, picture: Picture) -> None:
        """Print which silos connected or disconnected, which round was committed, and what the run is waiting for."""
        status = picture.status
        connected = frozenset(silo.name for silo in status.silos if silo.connected)
        for silo in sorted(connected ^ self._connected):
            self.say(f"silo {silo} {'connected' if silo in connected else 'disconnected'}")
        self._connected = connected
        waiting = waiting_for(status)
        if waiting != self._waiting and waiting:
            self.say(waiting)
        self._waiting = waiting
        if status.last_checkpoint is not None and status.round != self._round:
            self._round = status.round
            scores = metrics_line(status, exact=True)  # stays as it was where this round was not scored
            self.say(_round_line(picture, scored=scores != self._scores))
            self._scores = scores
        if _storing(picture) and not self._stored:
            self._stored = True
            self.say(STORING)

    def say(self, line: str) -> None:
        """Write one line."""
        self._stream.write(line + "\n")
        self._stream.flush()


def view_for(stream: TextIO, *, terminal: bool) -> View:
    """Return a live display if `terminal`, otherwise plain lines to `stream`."""
    return LiveView(console_on(stream)) if terminal else LineView(stream)


def _storing(picture: Picture) -> bool:
    status = picture.status
    return status.rounds == status.round > 0 and picture.processes.get("server") == "running"


def waiting_for(status: FederationStatus) -> str:
    """Return what the run is waiting for, empty if nothing."""
    for condition in status.conditions:
        if condition.type == ConditionType.QUORUM_MET and condition.status == "False":
            return f"waiting: {condition.message or condition.reason}"
    return ""


def metrics_line(status: FederationStatus, *, exact: bool = False) -> str:
    """Write the first metrics of the last evaluation; `exact`: with every digit."""
    values = {metric.name: metric.value if exact else _short(metric.value) for metric in status.metrics}
    return "  ".join(f"{name.replace('_', ' ')} {values[name]}" for name in shown_first(values))


def _short(value: str) -> str:
    try:
        return f"{float(value):.4g}"
    except ValueError:
        return value


def _round_line(picture: Picture, *, scored: bool) -> str:
    status, scores = picture.status, metrics_line(picture.status) if scored else ""
    parts = [f"round {status.round}/{status.rounds} committed", scores, duration(picture.elapsed_seconds)]
    if picture.remaining_seconds is not None and status.round < status.rounds:
        parts.append(f"about {duration(picture.remaining_seconds)} left")
    return ", ".join(part for part in parts if part)


def draw(picture: Picture) -> RenderableType:
    """Render a run: its name, its progress, all silos, and the latest metrics."""
    status = picture.status
    remaining = picture.remaining_seconds
    times = f"elapsed {duration(picture.elapsed_seconds)}" + (
        f", about {duration(remaining)} left" if remaining else ""
    )
    head = Table.grid(padding=(0, 2))
    head.add_row(Text(picture.federation, style="bold"), picture.method, times)
    head.add_row(
        f"round {status.round}/{status.rounds or '?'}",
        _bar(max(1, status.rounds), status.round, 32),
        STORING if _storing(picture) else status.step or picture.processes.get("server", ""),
    )
    lines: list[RenderableType] = [head, silo_table(picture)]
    if status.metrics:
        lines.append(Text(metrics_line(status), style="green"))
    if waiting_for(status):
        lines.append(Text(waiting_for(status), style="yellow"))
    return Group(*lines)


def silo_table(picture: Picture) -> Table:
    """Render one line per silo: its state, progress and weight."""
    table = plain_table("silo", "state", "progress", "images", "weight", "note", right=("images", "weight"))
    known = {silo.name: silo for silo in picture.status.silos}
    for name in dict.fromkeys([*known, *(name for name in picture.processes if name != "server")]):
        silo, process = known.get(name), picture.processes.get(name, "")
        if silo is None or not silo.connected:
            reported_state = silo.state if silo and silo.state != SiloState.WAITING else ""
            table.add_row(name, Text(process or reported_state or "not connected", style="yellow"), "", "", "", "")
            continue
        bar = _bar(100, silo.progress, BAR)
        note = f"{silo.code} {silo.message}".strip()
        table.add_row(name, silo.state, bar, f"{silo.samples}", _short(silo.weight), Text(note, style="yellow"))
    return table


def _bar(total: int, completed: int, width: int) -> ProgressBar:
    return ProgressBar(total=total, completed=completed, width=width, complete_style="cyan", finished_style="green")


@dataclass(slots=True)
class Pace:
    """Estimates the remaining time of a run from the rounds committed since this start."""

    first_round: int | None = None
    first_time: float = 0.0
    last_round: int = 0
    last_time: float = 0.0

    def update(self, status: FederationStatus, now: float) -> float | None:
        """Record the round and return the remaining seconds, None if unknown."""
        if status.last_checkpoint is None:
            return None
        if self.first_round is None:
            self.first_round, self.first_time = status.round, now
        if status.round != self.last_round or not self.last_time:
            self.last_round, self.last_time = status.round, now
        done = self.last_round - self.first_round
        if done <= 0:
            return None
        per_round = (self.last_time - self.first_time) / done
        return max(0.0, per_round * (status.rounds - status.round) - (now - self.last_time))


def format_transferred(status: FederationStatus) -> str:
    """Format the number of transferred model bytes."""
    return f"{amount(status.bytes_up)} up, {amount(status.bytes_down)} down"

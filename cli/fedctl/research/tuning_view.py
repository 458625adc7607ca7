"""Output of ``fedctl tune``: how far a search is, and the table of its best trials."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anchorage.api.metrics import lower_is_better
from fedctl.output import BAR, console_on, duration, format_count, people, plain_table
from fedctl.view import LineView, LiveView, Picture, View, draw

SHOWN_TRIALS = 10
SHOWN_REASONS = 5
UNCHANGED = "the file as it is"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A trial that is over."""

    number: int
    """From 0, which is the federation's file as it is."""
    overrides: tuple[str, ...]
    """What it changes, as ``--set`` takes it."""
    value: float | None
    """The metric, mean over the seeds; None where the trial was refused."""
    std: float | None
    """Its standard deviation over the seeds; None of one seed."""
    reason: str
    """Why it was refused; else empty."""
    seconds: float
    """How long it took."""

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"trial {self.number}" + ("" if self.overrides else f", {UNCHANGED}")

    @property
    def settings(self) -> dict[str, str]:
        """What it changes, by the field's path without ``spec``; of a whole method its name."""
        parts = (override.partition("=") for override in self.overrides)
        return {path.removeprefix("spec."): _short(json.loads(value)) for path, _, value in parts}

    def __str__(self) -> str:
        if self.value is None:
            return "refused"
        return f"{self.value:.4f}" + ("" if self.std is None else f" ± {self.std:.4f}")

    def as_document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "trial": self.number,
            "set": list(self.overrides),
            "value": self.value,
            "std": self.std,
            "reason": self.reason,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class SearchState:
    """How far a search is."""

    metric: str
    """What trials are judged by."""
    trials: tuple[TrialResult, ...]
    """Those that are over."""
    most_trials: int
    """How many there may be."""
    most_seconds: float
    """After how many no further one begins."""

    @property
    def seconds(self) -> float:
        """How long all trials took; one that was proposed again took no time."""
        return sum({trial.overrides: trial.seconds for trial in reversed(self.trials)}.values())

    @property
    def best(self) -> TrialResult | None:
        """The best trial, of equals the first; None while none has a value."""
        return next(iter(self.ranked), None)

    @property
    def ranked(self) -> list[TrialResult]:
        """The trials with a value, each combination once, the best first."""
        once = {trial.overrides: trial for trial in reversed(self.trials) if trial.value is not None}
        sign = 1 if lower_is_better(self.metric) else -1
        return sorted(once.values(), key=lambda trial: (sign * (trial.value or 0.0), trial.number))

    @property
    def over(self) -> bool:
        """Whether no further trial begins."""
        return len(self.trials) >= self.most_trials or self.seconds >= self.most_seconds

    def __str__(self) -> str:
        done = f"{len(self.trials)} of {self.most_trials} trials, {duration(self.seconds)} of {duration(self.most_seconds)}"
        return done + (f", best {self.metric.replace('_', ' ')} {best} ({best.title})" if (best := self.best) else "")


class SearchLines(LineView):
    """Prints a line per trial, and none per round.

    Parameters
    ----------
    stream : file
        Where the lines go.
    """

    def show(self, picture: Picture) -> None:
        """Do nothing: a search has very many rounds."""


class LiveSearch(LiveView):
    """A live display of the search above that of the round.

    Parameters
    ----------
    console : Console
        A terminal.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.state: SearchState | None = None

    def show(self, picture: Picture) -> None:
        """Redraw the search and its present trial."""
        lines = [] if self.state is None else [_head(self.state)]
        self._live.update(Group(*lines, draw(picture)))


def search_view(stream: TextIO, *, terminal: bool) -> "LiveSearch | SearchLines":
    """Return a live display if `terminal`, otherwise a line per trial to `stream`."""
    return LiveSearch(console_on(stream)) if terminal else SearchLines(stream)


def show_search_state(view: View, state: SearchState) -> None:
    """Show how far the search is: on a terminal as a bar until it is shown again."""
    if isinstance(view, LiveSearch):
        view.state = state
    elif state.trials:
        view.say(str(state))


def _head(state: SearchState) -> RenderableType:
    done = max(len(state.trials) / state.most_trials, state.seconds / state.most_seconds)
    head = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=1.0, completed=min(1.0, done), width=BAR, complete_style="cyan", finished_style="green")
    head.add_row("search", bar, str(state))
    return head


def print_search(federation: str, state: SearchState, best: Path, command: str, *, wide: bool) -> None:
    """Print the table of the best trials and how to run the best one; `wide`: of all trials, and every refusal."""
    metric, ranked = state.metric.replace("_", " "), state.ranked
    refused = [trial for trial in state.trials if trial.value is None]
    counts = format_count(len(state.trials), "trial") + (f" ({len(refused)} refused)" if refused else "")
    lines: list[RenderableType] = [Text(f"{federation}: {counts} in {duration(state.seconds)}", style="bold")]
    lines.append(_table(ranked if wide else ranked[:SHOWN_TRIALS], metric))
    reasons = {trial.reason: trial.number for trial in reversed(refused)}
    shown = list(reversed(reasons.items()))
    lines += [Text(f"trial {number} refused: {reason}") for reason, number in shown[: None if wide else SHOWN_REASONS]]
    if not ranked[0].overrides:
        lines.append(Text(f"no trial is better than {UNCHANGED}"))
    lines.append(
        Text("values are on the validation images; the test images were not read, the run scores on them once")
    )
    lines += [Text(f"the best trial's file is {best}; run it:"), Text(f"  {command}")]
    people().print(Group(*lines), soft_wrap=True)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['name']} …" if "name" in value else json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _table(trials: Sequence[TrialResult], metric: str) -> RenderableType:
    names = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    table = plain_table("trial", metric, "took", *names, right=("trial", metric, "took"))
    for trial in trials:
        cells = [trial.settings.get(name, "") for name in names]
        table.add_row(str(trial.number), str(trial), duration(trial.seconds), *cells)
    return table

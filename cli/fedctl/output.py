"""Output of commands: tables for people, JSON or YAML for programs."""

import json
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from time import sleep
from typing import Annotated, Any, TextIO

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from anchorage.api.errors import AnchorageError, Failure, cluster


class Format(StrEnum):
    """Values of ``-o``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def for_people(self) -> bool:
        """Whether it is a table."""
        return self in (Format.TABLE, Format.WIDE)


Output = Annotated[Format, typer.Option("--output", "-o", help="table, wide, json or yaml.")]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Go on until Ctrl-C: redrawn in place on a terminal, else printed whenever something changed.",
    ),
]
WATCH_SECONDS = 1.0
PASSING = (cluster.CLUSTER_UNREACHABLE, cluster.POD_UNREACHABLE)
"""Failures that a watch outlasts: a network that is gone for a while, a pod that restarts."""
UNBOUNDED = 1000
"""Columns of an output that is no terminal."""
LONGEST_WORD = 24
"""Characters of a word, such as a number, that a narrow terminal leaves in one line; longer ones are paths and digests."""
READABLE = 20
"""Characters in a line of a text that is wrapped."""
BAR = 20
"""Columns of a progress bar."""


def emit(document: Any, output: Format) -> None:
    """Print a document of JSON values as one JSON or YAML document on stdout."""
    if output is Format.YAML:
        from anchorage.api.source import write_documents

        typer.echo(write_documents([document], explicit_start=False), nl=False)
    else:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def show(
    observe: Callable[[], Any], table: Callable[[Any], RenderableType], output: Format, *, watch: bool = False
) -> None:
    """Print an observation once, or whenever it changes.

    Parameters
    ----------
    observe : callable
        Returns JSON values.
    table : callable
        Draws them for people.
    output : Format
        How to print.
    watch : bool
        Go on until Ctrl-C: a terminal is redrawn in place, a file or a pipe gets what changed, programs one JSON document a line (YAML: one
        document each).

    Raises
    ------
    AnchorageError
        It cannot be observed. A watch that has observed it once says a `PASSING` failure on stderr and asks again.
    """
    before = None
    console = people()
    if watch and output.for_people and sys.stdout.isatty() and not console.is_dumb_terminal:
        _redraw(console, _observations(observe, watch), table)
        return
    for observation in _observations(observe, watch):
        if observation != before:
            if output.for_people:
                console.print(table(observation))
            elif watch and output is Format.JSON:
                typer.echo(json.dumps(observation, ensure_ascii=False))
            else:
                if watch:
                    typer.echo("---")
                emit(observation, output)
        before = observation


def _redraw(console: Console, observations: Iterator[Any], table: Callable[[Any], RenderableType]) -> None:
    """Draw observations on a terminal in place of each other; the last one stays."""
    first = next(observations)
    with Live(FittedLines(table(first)), console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for observation in observations:
            live.update(FittedLines(table(observation)), refresh=True)


class FittedLines:
    """What has more lines than a terminal, such as a table of rounds, without those after its head.

    Parameters
    ----------
    content : RenderableType
        The whole.
    """

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the head and the last lines."""
        lines = console.render_lines(self._content, options.update(height=None), pad=False)
        room = max(3, console.size.height - 1)
        if len(lines) > room:
            lines = [lines[0], [Segment("…")], *lines[2 - room :]]
        for line in lines:
            yield from line
            yield Segment.line()


def _observations(observe: Callable[[], Any], watch: bool) -> Iterator[Any]:
    """Yield an observation once, or repeatedly."""
    yield observe()
    trouble: Failure | None = None
    while watch:
        sleep(WATCH_SECONDS)
        try:
            observation = observe()
        except AnchorageError as error:
            if error.failure not in PASSING:
                raise
            if error.failure is not trouble:
                typer.echo(f"{error}; asking again", err=True)
            trouble = error.failure
        else:
            trouble = None
            yield observation


def people() -> Console:
    """Return the console on stdout, which does not wrap lines in a file or a pipe, and takes no text for markup."""
    return console_on(None, width=None if sys.stdout.isatty() else UNBOUNDED)


def console_on(stream: TextIO | None, width: int | None = None) -> Console:
    """Return a console that shows brackets and colons as they are: text may be another party's."""
    return Console(file=stream, width=width, markup=False, emoji=False)


class PlainTable(Table):
    """A table without frames that cuts no number: where its columns do not fit, each row becomes lines of ``COLUMN value``."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render as a table, or as lines."""
        needs = [_widths(column) for column in self.columns]
        free = options.max_width - sum(least for least, _ in needs) - (gaps := len(needs) - 1)
        if free >= 0:
            apart = free >= gaps
            self.padding, free = (0, 1, 0, int(apart)), free - gaps * apart
            for column, (least, most) in sorted(zip(self.columns, needs, strict=True), key=lambda each: each[1][1]):
                column.width = min(most, least + free)
                free -= column.width - least
            yield from super().__rich_console__(console, options)
            return
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            lines = Table.grid(padding=(0, 2))
            for column, cell in zip(self.columns, cells, strict=True):
                if str(cell):
                    lines.add_row(column.header, cell)
            lines.columns[1].overflow = "fold"
            yield lines
            yield Text()


def _widths(column: Column) -> tuple[int, int]:
    """Return the least width of a column, in which no number is cut, and the width of its longest cell."""
    title = str(column.header)
    cells = [str(cell) if isinstance(cell, (str, Text)) else BAR * "-" for cell in column.cells]
    parts = cells if column.justify == "right" else [word[:LONGEST_WORD] for cell in cells for word in cell.split()]
    most = max(map(cell_len, (*cells, title)))
    prose = 0 if column.justify == "right" else min(most, READABLE)
    return max(prose, *map(cell_len, (*parts, *title.split())), 0), most


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table as kubectl prints; the columns in `right` hold numbers, aligned to the right and never wrapped."""
    table = PlainTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper(), justify="right" if column in right else "left", overflow="fold")
    return table


def warn(text: str) -> None:
    """Print a warning on stderr, so that what stdout gets stays readable for programs."""
    typer.echo(f"warning: {text}", err=True)


def format_count(number: int, thing: str) -> str:
    """Format a count, such as ``1 round`` or ``2 rounds``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def amount(nbytes: float) -> str:
    """Format a number of bytes, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def duration(seconds: float) -> str:
    """Format a time span."""
    whole_seconds = round(seconds)
    if whole_seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole_seconds} s"
    if whole_seconds < 3600:
        return f"{whole_seconds // 60} min {whole_seconds % 60:02d} s"
    return f"{whole_seconds // 3600} h {whole_seconds % 3600 // 60:02d} min"

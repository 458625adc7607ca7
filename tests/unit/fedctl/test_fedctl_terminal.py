"""What people see on a narrow terminal: every number whole, and logs in the order of time."""

import io
import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.status import FederationStatus, Metric, SiloStatus
from anchorage.methods import PRESETS
from fedctl import inspection, output
from fedctl.failures import ending
from fedctl.inspection import in_order, interleave
from fedctl.methods import _description
from fedctl.output import people, plain_table
from fedctl.source import Observation
from fedctl.view import Picture, silo_table

METRICS = {"balanced_accuracy": 0.98765, "accuracy": 0.98761, "macro_auc": 0.99912, "loss": 0.012345}
SILO = {
    "name": "hospital-of-the-north",
    "connected": True,
    "state": "Training",
    "progress": 34,
    "task": "t",
    "rate": 0,
    "secondsLeft": None,
    "samples": 1234567,
    "weight": "0.333",
    "code": "ANC-3004",
    "message": "NaN in round 12 at step 7654321, loss 0.123456",
}
TRAVELLING = {**SILO, "rate": 497_123, "secondsLeft": 80, "code": "", "message": ""}
ROUND = {
    "round": 1200,
    "time": 1.7e9,
    "seconds": {"train": 3663.0},
    "silos": [{"name": "a", "state": "Counted", "code": "", "message": ""}] * 12,
    "bytesUp": 12_345_678,
    "bytesDown": 223_456_789,
    "metrics": METRICS,
}


def drawn(table: RenderableType, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def numbers(text: str) -> set[str]:
    return {word.strip(",") for word in text.split() if re.search(r"\d", word)}


def status_of(wide: bool) -> RenderableType:
    metrics = (Metric(name="accuracy", value="0.98765"),)
    status = FederationStatus(round=1200, rounds=123456, metrics=metrics, bytes_up=12_345_678)
    document = {
        "metadata": {"name": "federation-of-hospitals"},
        "spec": {"rounds": 1, "method": {"name": "FedAnchor", "mixup": {"both": {}}}},
    }
    return inspection._status_table(Observation(document, status, True), wide)


def compared() -> RenderableType:
    table = plain_table("method", "seeds", "last", "best", "moved", right=("seeds", "last", "best", "moved"))
    table.add_row("FedAnchor (studies/skin/uneven)", "12", "0.9876 ± 0.0123", "0.9912 ± 0.0098", "123.4 MB")
    return table


TABLES: dict[str, Any] = {
    "status": lambda: status_of(False),
    "status, wide": lambda: status_of(True),
    "silos": lambda: inspection._silos_table([SILO], False),
    "silos, one on its way": lambda: inspection._silos_table([TRAVELLING], False),
    "rounds, wide": lambda: inspection._rounds_table([ROUND], True),
    "comparison": compared,
}


@pytest.mark.parametrize("width", [80, 60, 40])
@pytest.mark.parametrize("name", TABLES)
def test_no_terminal_cuts_a_number(name: str, width: int) -> None:
    everything = numbers(" ".join(drawn(TABLES[name](), 1000)))
    lines = drawn(TABLES[name](), width)
    values = numbers(" ".join(lines))
    assert {number for number in everything if len(number) <= 24} <= values
    assert max(map(len, lines)) <= width


def test_a_model_on_its_way_shows_its_rate_and_the_time_left() -> None:
    slow = {**TRAVELLING, "rate": 1, "secondsLeft": None}
    lines = drawn(inspection._silos_table([SILO, TRAVELLING, slow], False), 1000)
    assert [
        part in line
        for part, line in zip((" 34 % ", " 497.1 kB/s, 1 min 20 s left ", " 1 B/s "), lines[1:], strict=True)
    ] == [True] * 3


def test_a_method_is_described_at_80_columns() -> None:
    description = _description(PRESETS["FedAnchor"])
    assert numbers(" ".join(drawn(description, 80))) >= numbers(" ".join(drawn(description, 1000)))


def test_rounds_are_a_table_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "people", lambda: Console(width=80))
    lines = drawn(inspection._rounds_table([ROUND, {**ROUND, "round": 1201}], False), 80)
    assert [line.split()[0] for line in lines[-2:]] == ["1200", "1201"]
    assert {"0.9877", "0.9876", "0.9991", "12/12"} <= set(lines[-1].split())


def test_rows_that_do_not_fit_become_lines() -> None:
    assert [line.split() for line in drawn(compared(), 40)][:3] == [
        ["METHOD", "FedAnchor", "(studies/skin/uneven)"],
        ["SEEDS", "12"],
        ["LAST", "0.9876", "±", "0.0123"],
    ]


def line(second: int, message: str) -> str:
    return json.dumps({"time": f"2026-11-21T12:00:{second:02d}.000+00:00", "level": "INFO", "message": message})


def test_logs_of_several_processes_are_in_the_order_of_time() -> None:
    def server() -> Iterator[str]:
        yield from (line(1, "a"), line(5, "b"), "  of a traceback", line(9, "c"))

    def silo() -> Iterator[str]:
        yield from (line(2, "d"), line(6, "e"))
        raise AnchorageError(commands.NO_RUN_HERE, "gone")

    expected = ["server", "silo", "server", "server", "silo", "silo", "server"]
    ordered_names = list(in_order({"server": server, "silo": silo}))
    assert [name for name, _ in ordered_names] == expected
    assert ordered_names[3][1] == "  of a traceback" and isinstance(ordered_names[5][1], AnchorageError)
    assert [name for name, _ in interleave({"silo": silo, "server": server})] == expected


def test_text_of_another_party_is_shown_as_it_is_and_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    hostile_text = "[link=https://evil]x[/red] :skull: \x1b[2J\x1b]0;title\x07\nANC-9999"
    status = FederationStatus(silos=(SiloStatus(**{**SILO, "task": "Train", "message": hostile_text}),))
    people().print(silo_table(Picture("derm", "FedAvg", status)))
    shown = capsys.readouterr().out
    assert "[link=https://evil]x[/red] :skull:" in " ".join(shown.split())
    assert "\x1b" not in shown and "\x07" not in shown and len(shown.splitlines()) == 2


def test_escape_sequences_in_a_log_or_an_error_do_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SimpleNamespace(processes=lambda: ["server"], log=lambda *_, **__: iter(["\x1b[2Jred\talert"]))
    inspection.show_logs(source, None, 10, follow=False)

    def refused() -> None:
        raise AnchorageError(commands.NO_RUN_HERE, "the server says \x1b[31m")

    assert ending(refused) == commands.NO_RUN_HERE.exit_code
    shown = capsys.readouterr()
    assert "[2Jred alert" in shown.out and "the server says  [31m" in shown.err and "\x1b" not in shown.out + shown.err


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def watched(monkeypatch: pytest.MonkeyPatch, screens: list[list[str]], height: int = 24) -> str:
    """Return what a terminal gets that shows observations, lines of text, until Ctrl-C."""
    terminal, screens_left = Terminal(), iter(screens)
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr(output, "sleep", lambda _: None)
    console = Console(file=terminal, width=80, height=height, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "people", lambda: console)

    def observe() -> list[str]:
        try:
            return next(screens_left)
        except StopIteration:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        output.show(observe, lambda lines: Text("\n".join(lines)), output.Format.TABLE, watch=True)
    return terminal.getvalue()


def test_a_watched_view_is_redrawn_in_place_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [[f"head {number}", "round 1", "round 2"] for number in range(3)]
    screen = Screen(watched(monkeypatch, rounds))
    assert screen.lines == ["head 2", "round 1", "round 2"], "the last one stays, alone"


def test_a_watched_view_of_more_lines_than_the_terminal_keeps_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    screens = [["ROUND", *(f"round {number}" for number in range(last))] for last in (2, 40, 41)]
    screen = Screen(watched(monkeypatch, screens, height=10))
    assert screen.lines == ["ROUND", "…", *(f"round {number}" for number in range(34, 41))]


class Screen:
    """What is seen on a terminal after it got text: lines, moves of the cursor up, and erased lines."""

    def __init__(self, text: str) -> None:
        self.lines: list[str] = []
        row = 0
        for move, erase, newline, words in re.findall(
            r"\x1b\[(\d*)A|\x1b\[(2)K|(\n)|\r|\x1b\[[?\d;]*[a-zA-Z]|([^\x1b\n\r]+)", text
        ):
            row += bool(newline) - int(move or 0)
            self.lines += [""] * (row + 1 - len(self.lines))
            self.lines[row] = "" if erase else self.lines[row] + words
        self.lines = [line for line in self.lines if line]

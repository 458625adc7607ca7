"""Which exceptions are taken for a piece's mistake, and what of them leaves a hospital."""

from collections.abc import Callable
from pathlib import Path

import pytest

from anchorage.api.errors import AnchorageError, learning
from anchorage.api.piece import PIECES, piece
from anchorage.api.piece_faults import describe_value, naming_pieces, shorten, without_text
from anchorage.engine.aggregation.mean import NonFiniteUpdate
from anchorage.pieces.slots import Aggregation
from anchorage.transport.files import write_atomically


class AcceleratorError(RuntimeError):
    """Named as torch's error of a device."""


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Return what raises an exception in a piece of another package."""
    PIECES.of("aggregation")  # every package is loaded
    monkeypatch.setattr(PIECES, "_pieces", dict(PIECES._pieces))

    @piece("acme.Raising")
    class Raising(Aggregation):
        def aggregate(self, updates, weights, layout, model):  # type: ignore[no-untyped-def]
            raise updates

    def act(error: BaseException) -> None:
        with naming_pieces():
            Raising().aggregate(error, (), None, None)

    return act


def test_an_exception_in_a_piece_names_it_and_is_its_cause(raising: Callable[[BaseException], None]) -> None:
    with pytest.raises(
        AnchorageError, match=r"PieceWrong: aggregation acme\.Raising \(.*aggregate raised ValueError at .*: no$"
    ) as caught:
        raising(ValueError("no\nTraceback"))
    assert caught.value.failure is learning.PIECE_WRONG and isinstance(caught.value.__cause__, ValueError)


OTHERS = [
    MemoryError(),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    AcceleratorError("lost"),
    NonFiniteUpdate(0, "w"),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("error", OTHERS, ids=lambda error: type(error).__name__)
def test_what_is_no_mistake_of_the_piece_passes(raising: Callable[[BaseException], None], error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        raising(error)
    assert caught.value is error


def test_a_disk_that_fails_below_a_piece_is_not_the_pieces_mistake(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    PIECES.of("aggregation")
    monkeypatch.setattr(PIECES, "_pieces", dict(PIECES._pieces))

    @piece("acme.Writing")
    class Writing(Aggregation):
        def aggregate(self, updates, weights, layout, model):  # type: ignore[no-untyped-def]
            write_atomically(updates, b"")

    with pytest.raises(OSError, match="nowhere"), naming_pieces():
        Writing().aggregate(tmp_path / "nowhere" / "file", (), None, None)
    with pytest.raises(AnchorageError, match="open raised FileNotFoundError"), naming_pieces():
        Opening().open(tmp_path / "nowhere")


class Opening(Aggregation):
    """Opens a file of its own."""

    def open(self, file: Path) -> None:
        """Open it."""
        file.read_bytes()

    def aggregate(self, updates, weights, layout, model):  # type: ignore[no-untyped-def]
        """Not called."""


def test_an_exception_outside_pieces_passes() -> None:
    with pytest.raises(ZeroDivisionError), naming_pieces():
        _ = 1 / 0


def test_the_text_of_an_exception_stays_and_what_was_due_does_not() -> None:
    place = "localLoss acme.Focal (acme/focal.py:15 of acme 0.1.0): round_loss.loss raised KeyError at acme/focal.py:31"
    assert without_text(f"{place}: 'patient 17: Anna'") == place
    returned = "localLoss acme.Focal (acme/focal.py:15): round_loss returned None; due: a function"
    assert without_text(returned) == returned


def test_values_in_messages_are_bounded() -> None:
    assert len(describe_value("x" * 10_000)) <= 200 and "\n" not in shorten("a\nb")
    assert (
        describe_value([1, 2]) == "list of 2 items"
        and describe_value(None) == "None"
        and describe_value(object()) == "object"
    )

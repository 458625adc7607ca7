"""Error output of commands: one line, a reference to documentation, and the exit code of the catalogue."""

from collections.abc import Callable
from types import FrameType

import typer

from anchorage.api.errors import AnchorageError
from anchorage.api.regular_files import NotARegularFileError
from anchorage.api.text import printable
from fedctl.processes import InterruptError, signals_to


def ending(command: Callable[[], object]) -> int:
    """Run a command and return its exit status.

    A failure of the catalogue, such as an exception in a piece of the method, is told on stderr in one line (one per mistake in documents),
    with the page that explains it; a signal ends the command with 128 and its number.
    """
    try:
        with signals_to(_interrupt):
            _carry_out(command)
    except AnchorageError as error:
        lines = map(printable, str(error).splitlines())  # it may tell what a server or a cluster said
        typer.echo("\n".join((*lines, f"see fedctl explain {error.code}")), err=True)
        return error.failure.exit_code
    except InterruptError as interrupt:
        typer.echo(str(interrupt), err=True)
        return 128 + interrupt.number
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    return 0


def _carry_out(command: Callable[[], object]) -> None:
    try:
        command()
    except NotARegularFileError as error:
        raise error.failure() from error
    except AnchorageError:
        raise
    except Exception:
        from anchorage.api.piece_faults import naming_pieces  # with pydantic, which takes a quarter of a second

        with naming_pieces():
            raise


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise InterruptError(number)

"""What the file system refuses of a command's files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from anchorage.api.errors import AnchorageError, commands

ANOTHER_WORKDIR = "; name another --workdir"


@contextmanager
def writing(path: Path, remedy: str = "") -> Iterator[None]:
    """Turn the file system's errors into the catalogue's.

    Parameters
    ----------
    path : Path
        What is written.
    remedy : str
        Ends the message, such as `ANOTHER_WORKDIR`.

    Raises
    ------
    AnchorageError
        WORKDIR_UNUSABLE in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}{remedy}"
        raise AnchorageError(commands.WORKDIR_UNUSABLE, message) from error


def refuse_existing(*files: Path) -> None:
    """Refuse to overwrite a file.

    Raises
    ------
    BadParameter
        One is there.
    """
    for file in files:
        if file.exists():
            message = f"{file} is there already and is not overwritten; name another --out, or add --force"
            raise typer.BadParameter(message)

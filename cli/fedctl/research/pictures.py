"""Figures as files, by matplotlib if it is installed."""

from pathlib import Path
from typing import Any

import typer

from anchorage.api.errors import AnchorageError, commands
from fedctl.writing import writing

SUFFIXES = (".png", ".svg")
"""Kinds of files that a picture is written as."""


def check_picture_suffix(path: Path | None) -> None:
    """Reject a file whose suffix is not in `SUFFIXES`, before anything is computed.

    Raises
    ------
    typer.BadParameter
        With the kinds that there are.
    """
    if path is not None and path.suffix not in SUFFIXES:
        raise typer.BadParameter(f"found {path}, allowed is a name that ends with {' or '.join(SUFFIXES)}")


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib figure of a size in inches.

    Raises
    ------
    AnchorageError
        PACKAGE_MISSING: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        message = f"{error.name or 'matplotlib'} is not installed; pip install 'anchorage[server]', or leave --plot out"
        raise AnchorageError(commands.PACKAGE_MISSING, message) from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure.

    Raises
    ------
    AnchorageError
        WORKDIR_UNUSABLE: the file cannot be written.
    """
    with writing(path):
        figure.savefig(path)

"""Other programs: run one, and say what it said when it fails."""

import subprocess
from collections.abc import Mapping
from pathlib import Path


class CommandFailed(RuntimeError):
    """A command ended with another code than 0, or did not end in time; the text has what it wrote."""


def run(
    *arguments: str | Path,
    check: bool = True,
    seconds: float = 60.0,
    text: str | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """
    Run a command and return what it wrote to stdout, without white space at its ends.

    Parameters
    ----------
    check
        Raise when the command fails; otherwise return what it wrote nevertheless.
    seconds
        How long it may take.
    text
        What it reads from stdin.

    Raises
    ------
    CommandFailed
    """
    command = [str(argument) for argument in arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, input=text or "", cwd=folder, env=environment, timeout=seconds
        )
    except subprocess.TimeoutExpired as late:
        raise CommandFailed(f"{' '.join(command)[:300]}\ndid not end within {seconds:.0f} s") from late
    if check and done.returncode:
        raise CommandFailed(f"{' '.join(command)[:300]}\nended with {done.returncode}: {done.stderr.strip()[-4000:]}")
    return done.stdout.strip()

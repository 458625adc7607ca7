"""Start of the server process: its arguments, limits, signals and exit status."""

import argparse
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import STOPPED
from anchorage.api.logs import log_to_stderr
from anchorage.api.piece_faults import log_exception, naming_pieces
from anchorage_server.config import read_config
from anchorage_server.process import serve
from anchorage_server.signals import end_at_once


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a federation's server until its rounds are committed or it cannot go on.

    Returns
    -------
    int
        0 when every round is committed, else the exit code of the failure, whose line is the last on standard error.
    """
    parser = argparse.ArgumentParser(prog="anchorage-server", description="The aggregation server of one federation.")
    parser.add_argument("--config", type=Path, required=True, help="YAML file with the server's configuration")
    options = parser.parse_args(arguments)
    log_to_stderr()
    _allow_many_files()
    end_at_once(STOPPED.exit_code)
    try:
        with naming_pieces():
            return serve(read_config(options.config))
    except AnchorageError as error:
        log_exception(error)
        sys.stderr.write(f"{error}\n")
        return error.failure.exit_code


def _allow_many_files() -> None:
    """Raise the limit of open files as far as the system lets us: each silo's connection and spool file is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

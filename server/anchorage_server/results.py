"""Keeps the rounds and models of a stopped run at hand, and trains nothing: ``python -m anchorage_server.results --config FILE``."""

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.logs import log_to_stderr
from anchorage.transport.probes import ProbeServer, verdict
from anchorage_server.clock import SystemClock
from anchorage_server.config import read_config
from anchorage_server.readers import READERS_SECONDS, await_readers
from anchorage_server.signals import SIGNALS

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer probes until a signal comes and nobody reads any more.

    Returns
    -------
    int
        0, or the exit code of the failure, whose line is on standard error.
    """
    parser = argparse.ArgumentParser(
        prog="anchorage-server-results", description="Keeps a stopped run's results at hand."
    )
    parser.add_argument("--config", type=Path, required=True, help="YAML file with the server's configuration")
    options = parser.parse_args(arguments)
    log_to_stderr()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        _keep(options.config)
    except AnchorageError as error:
        sys.stderr.write(f"{error}\n")
        return error.failure.exit_code
    return 0


def _keep(file: Path) -> None:
    config = read_config(file)
    answer = verdict(True, "the run was stopped; its rounds and models can be read")
    probes = ProbeServer(config.status_listen, {"/healthz": lambda: answer, "/readyz": lambda: answer})
    probes.start()
    try:
        _log.info("keeping the results of a run that was stopped", extra={"state": str(config.state)})
        signal.sigwait(SIGNALS)
        await_readers(config.state, SystemClock(), READERS_SECONDS)
    finally:
        probes.stop()


if __name__ == "__main__":
    sys.exit(main())

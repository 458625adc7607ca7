"""``anchorage-silo --config silo.yaml``: the agent's process."""

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from anchorage.errors import AnchorageError, rounds
from anchorage.logs import log_to_stderr
from anchorage_silo.config import SiloConfig, read_document
from anchorage_silo.session import take_part

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the agent until the federation's run is over, then exit with 0, or with the exit code of the failure that ended it."""
    parser = argparse.ArgumentParser(prog="anchorage-silo", description="Takes part in a federation for one silo.")
    parser.add_argument("--config", type=Path, required=True, help="the silo's configuration, YAML")
    chosen = parser.parse_args(arguments)
    log_to_stderr()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        take_part(read_document(chosen.config, SiloConfig))
    except KeyboardInterrupt:
        _end(AnchorageError(rounds.STOPPED, "the agent was asked to stop; start it again and it goes on"))
    except AnchorageError as error:
        _end(error)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the agent cleanly; another signal does not disturb the end."""
    for other in (signal.SIGTERM, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end(error: AnchorageError) -> None:
    sys.stderr.write(f"{error}\n")
    sys.exit(error.failure.exit_code)

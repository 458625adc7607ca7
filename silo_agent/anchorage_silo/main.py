"""``anchorage-silo --config silo.yaml``: the agent's process."""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from anchorage.api.errors import AnchorageError, rounds
from anchorage.api.logs import log_to_stderr

END_SECONDS = 10.0
"""How long a clean end may take, well below the grace that a cluster gives; then the process just ends."""

_log = logging.getLogger(__name__)


class _Interruption:
    """What the first SIGTERM or SIGINT does: end the agent cleanly. Another one does not disturb the end."""

    exit_code = rounds.STOPPED.exit_code

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for other in (signal.SIGTERM, signal.SIGINT):
            signal.signal(other, signal.SIG_IGN)
        forced = threading.Timer(END_SECONDS, os._exit, (self.exit_code,))
        forced.daemon = True
        forced.start()
        raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the agent until the federation's run is over, then exit with 0, or with the exit code of the failure that ended it.

    An agent that stays is a service: SIGTERM is its ordinary end, and the exit code is 0.
    """
    parser = argparse.ArgumentParser(prog="anchorage-silo", description="Takes part in a federation for one silo.")
    parser.add_argument("--config", type=Path, required=True, help="the silo's configuration, YAML")
    chosen = parser.parse_args(arguments)
    log_to_stderr()
    interruption = _Interruption()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interruption)
    try:
        # only now, since they take a while, and until it has handlers a container's first process hears no signal
        from anchorage.api.single import read_document
        from anchorage_silo.config import SiloConfig
        from anchorage_silo.session import take_part

        config = read_document(chosen.config, SiloConfig)
        if config.stay:
            interruption.exit_code = 0
        take_part(config)
    except KeyboardInterrupt:
        if interruption.exit_code:
            _end(AnchorageError(rounds.STOPPED, "the agent was asked to stop; start it again and it goes on"))
        _log.info("the agent was asked to stop")
    except AnchorageError as error:
        _end(error)


def _end(error: AnchorageError) -> None:
    sys.stderr.write(f"{error}\n")
    sys.exit(error.failure.exit_code)

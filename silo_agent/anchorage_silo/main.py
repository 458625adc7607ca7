"""``anchorage-silo --config silo.yaml``: the entry point of the agent."""

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
from anchorage.api.imports import import_large
from anchorage.api.logs import log_to_stderr
from anchorage.api.regular_files import NotARegularFileError

SHUTDOWN_SECONDS = 10.0
"""Time limit of a clean shutdown, well below a cluster's grace period; then the process exits."""

_log = logging.getLogger(__name__)


class _StopHandler:
    """Signal handler: the first SIGTERM or SIGINT ends the agent cleanly, further ones are ignored."""

    exit_code = rounds.STOPPED.exit_code

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for other in (signal.SIGTERM, signal.SIGINT):
            signal.signal(other, signal.SIG_IGN)
        forced = threading.Timer(SHUTDOWN_SECONDS, os._exit, (self.exit_code,))
        forced.daemon = True
        forced.start()
        raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the agent until the federation's run is over, or carry out a command; exit with 0, or with the exit code of the failure that ended it.

    With ``stay`` in the configuration the agent is a service: it ends on SIGTERM with exit code 0.
    """
    chosen = _parse(arguments)
    log_to_stderr()
    stop = _StopHandler()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        # imported after the handlers are set: imports take a while, and process 1 of a container ignores signals without a handler
        import_large("anchorage_silo.agent")
        from anchorage.api.piece_faults import naming_pieces
        from anchorage.api.single import read_document
        from anchorage_silo.agent import run_agent
        from anchorage_silo.commands import carry_out
        from anchorage_silo.config import SiloConfig
        from anchorage_silo.configure import configure
        from anchorage_silo.stand_ins import packages_apart

        if chosen.command == "configure":
            sys.stdout.write(f"{configure(chosen.invitation, chosen.images, chosen.out, chosen.state)}\n")
            return
        with packages_apart() as apart:
            config = read_document(chosen.config, SiloConfig)
            apart.configure(config)
            if chosen.command:
                carry_out(chosen, config)
                return
            if config.stay:
                stop.exit_code = 0
            with naming_pieces():
                run_agent(config)
    except KeyboardInterrupt:
        if stop.exit_code:
            _exit_with(AnchorageError(rounds.STOPPED, "the agent was asked to stop; start it again to continue"))
        _log.info("the agent was asked to stop")
    except AnchorageError as error:
        _exit_with(error)
    except NotARegularFileError as error:
        _exit_with(error.failure())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="anchorage-silo", description="Agent of one silo in a federation: --config alone runs it."
    )
    configured = argparse.ArgumentParser(add_help=False)
    configured.add_argument("--config", type=Path, required=True, help="the silo's configuration, YAML")
    parser.add_argument("--config", type=Path, help="the silo's configuration, YAML: run the agent")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    configuring = commands.add_parser(
        "configure", help="write the agent's configuration from an invitation (fedctl silo invite)"
    )
    configuring.add_argument("invitation", type=Path, metavar="FILE", help="the invitation: enrolment.yaml")
    configuring.add_argument("--images", type=Path, required=True, help="folder of the hospital's images")
    configuring.add_argument("--out", type=Path, default=Path(), help="folder for the files; default: this one")
    configuring.add_argument(
        "--state", type=Path, default=Path("state"), help="folder of the agent's own files; default: state"
    )
    review = commands.add_parser(
        "review", parents=[configured], help="say what the federation would do here, and its digest"
    )
    policy = commands.add_parser(
        "policy", parents=[configured], help="play a policy file against the requests in the audit log"
    )
    policy.add_argument("action", choices=("check",), help="what to do")
    policy.add_argument("file", type=Path, metavar="FILE", help="the policy, YAML")
    images = commands.add_parser(
        "images", parents=[configured], help="name the images that messages and logs call by a fingerprint"
    )
    images.add_argument("fingerprint", nargs="?", metavar="FINGERPRINT", help="its first digits; left out: every image")
    for answering in (review, policy, images):
        answering.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of the answer")
    approve = commands.add_parser(
        "approve", parents=[configured], help="approve what review showed (policy: requireApproval)"
    )
    approve.add_argument("digest", metavar="DIGEST", help="the digest that review showed")
    commands.add_parser(
        "rotate-key", parents=[configured], help="make a new key, and have it take the place of the present one"
    )
    audit = commands.add_parser(
        "audit", parents=[configured], help="verify that the audit log is whole and as it was written"
    )
    audit.add_argument("action", choices=("verify",), help="what to do")
    commands.add_parser(
        "forget", parents=[configured], help="remove the decoded images that the agent has stored; it must not run"
    )
    chosen = parser.parse_args(arguments)
    if chosen.config is None and chosen.command != "configure":
        parser.error("the following arguments are required: --config")
    return chosen


def _exit_with(error: AnchorageError) -> None:
    sys.stderr.write(f"{error}\n")
    sys.exit(error.failure.exit_code)

"""Sends an outbox to MLflow: ``python -m anchorage.engine.tracking.sender --outbox DIR --uri URI``.

What is sent is remembered by its offset, so a restart sends nothing twice; the run is found again by the key that the outbox gave it. While
MLflow is down it tries again and again; when its standard input is closed (the server has ended) it tries once more and ends.
"""

import argparse
import contextlib
import fcntl
import json
import logging
import os
import select
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.tracking import TRACKING_INCOMPLETE, TRACKING_UNREACHABLE
from anchorage.api.logs import log_to_stderr
from anchorage.api.mistakes import without_password
from anchorage.engine.tracking.mlflow_run import MlflowRun
from anchorage.engine.tracking.outbox import EVENTS, read_events
from anchorage.engine.tracking.process import RESULT
from anchorage.transport.files import write_atomically
from anchorage.transport.retry import RetryPolicy

STATE = "sender.json"
POLL_SECONDS = 0.3
LONGEST_PAUSE_SECONDS = 30.0
NICENESS = 10
TROUBLE = (MlflowException, SQLAlchemyError, OSError)
"""What MLflow, its stores and the network raise."""
REFUSED = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST"})
"""MLflow's codes for an event that no later attempt would get through."""

log = logging.getLogger("anchorage.engine.tracking")


@dataclass
class Progress:
    """What has been sent, on disk beside the events.

    Parameters
    ----------
    offset : int
        Bytes of the events that are done.
    run_id : str
        The run, once it exists.
    versions : dict of str to str
        Version of the registered model by role and digest.
    """

    offset: int = 0
    run_id: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Progress":
        """Return what an earlier process wrote, a new one where there is nothing."""
        path = folder / STATE
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def write(self, folder: Path) -> None:
        """Replace the file."""
        write_atomically(folder / STATE, json.dumps(asdict(self)).encode())


class Sending:
    """One outbox on its way to one tracking server.

    Parameters
    ----------
    folder : Path
        The outbox.
    uri : str
        MLflow tracking URI.
    """

    def __init__(self, folder: Path, uri: str) -> None:
        self._folder = folder
        self._uri = uri
        self._progress = Progress.read(folder)
        self._run: MlflowRun | None = None
        self.ended = False

    def send_all(self) -> None:
        """Send what waits, event by event.

        Raises
        ------
        MlflowException, SQLAlchemyError, OSError
            MLflow does not take it now; what was sent stays sent.
        """
        if self._run is None and self._progress.offset:
            self._reopen()
        for offset, event in list(read_events(self._folder, self._progress.offset)):
            try:
                self._send(event)
            except MlflowException as error:
                if error.error_code not in REFUSED:
                    raise
                log.warning("%s: MLflow refuses an event: %s", TRACKING_INCOMPLETE.code, first_line(error))
            self._progress.offset = offset
            self._progress.write(self._folder)
            for name in event.get("arrays", {}).values():
                (self._folder / name).unlink(missing_ok=True)

    def _reopen(self) -> None:
        """Continue the run of an earlier process."""
        for offset, event in read_events(self._folder, 0):
            if event["kind"] == "run" and offset <= self._progress.offset:
                self._run = MlflowRun.open(self._uri, event)

    def _send(self, event: Mapping[str, Any]) -> None:
        self.ended = event["kind"] == "end"
        if event["kind"] == "run":
            self._run = MlflowRun.open(self._uri, event)
            self._progress.run_id = self._run.run_id
            self._run.describe(event)
        elif self._run is None:
            log.warning("%s: an event without a run is left out", TRACKING_INCOMPLETE.code)
        elif event["kind"] == "round":
            self._run.log_round(event, self._folder)
        elif event["kind"] == "end":
            self._finish(self._run, event)

    def _finish(self, run: MlflowRun, event: Mapping[str, Any]) -> None:
        versions = {"final": "", "best": ""}
        if event["models"]:
            for role in versions:
                try:
                    versions[role] = run.register(role, Path(event["models"]), self._progress.versions)
                except (AnchorageError, KeyError, ValueError, FileNotFoundError) as error:
                    log.warning("%s: the %s model is not registered: %s", TRACKING_INCOMPLETE.code, role, error)
                self._progress.write(self._folder)
        run.end(event["code"])
        values = {
            "runId": run.run_id,
            "registeredModel": run.registered_model if any(versions.values()) else "",
            "modelVersion": versions["final"],
            "bestModelVersion": versions["best"],
        }
        write_atomically(self._folder / RESULT, json.dumps(values).encode())


def serve(sending: Sending, folder: Path) -> int:
    """Send until the run's end is sent or the server is gone; return the exit status."""
    policy, failures = RetryPolicy(2 * POLL_SECONDS, LONGEST_PAUSE_SECONDS), 0
    server_gone = False
    size = -1
    while True:
        try:
            if failures or (folder / EVENTS).stat().st_size != size:
                size = (folder / EVENTS).stat().st_size
                sending.send_all()
                failures = 0
        except TROUBLE as error:
            log.warning("%s %s: %s", TRACKING_UNREACHABLE.code, TRACKING_UNREACHABLE.reason, first_line(error))
            if server_gone:
                return TRACKING_UNREACHABLE.exit_code
            failures += 1
        if server_gone:
            return 0
        if sending.ended and not failures:
            return 0
        server_gone = wait_for_end_of_input(policy.pause(failures) if failures else POLL_SECONDS)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, without the passwords that a URI may carry."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return without_password(line)[:300]


def wait_for_end_of_input(seconds: float) -> bool:
    """Wait at most so long; return whether standard input is closed."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(readable) and not os.read(sys.stdin.fileno(), 4096)


def yield_to_rounds() -> None:
    """Take about a tenth of a processor that others want: results may come late, rounds may not, and on a busy machine both come.

    Linux shares the processor between sessions first (autogroup) and then inside each, so the process takes a session of its own and
    makes that one modest too.
    """
    with contextlib.suppress(PermissionError):  # it leads its session already
        os.setsid()
    with contextlib.suppress(OSError):  # a kernel without autogroups
        Path("/proc/self/autogroup").write_text(str(NICENESS))
    os.nice(NICENESS)


def main() -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="anchorage.engine.tracking.sender", description="Send an outbox to MLflow.")
    parser.add_argument("--outbox", type=Path, required=True, help="folder of the outbox")
    parser.add_argument("--uri", required=True, help="MLflow tracking URI")
    arguments = parser.parse_args()
    log_to_stderr(logging.WARNING)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # says again, with the address, what `serve` logs
    yield_to_rounds()
    folder: Path = arguments.outbox
    with (folder / "sender.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the sender of a killed server still sends its last events
        return serve(Sending(folder, arguments.uri), folder)


if __name__ == "__main__":
    sys.exit(main())

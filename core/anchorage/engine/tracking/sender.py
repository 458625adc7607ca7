"""Sends an outbox to MLflow: ``python -m anchorage.engine.tracking --outbox DIR --uri URI``.

What is sent is remembered by its offset, so a restart sends nothing twice; the run is found again by the key that the outbox gave it. While
MLflow is down it tries again and again; when its standard input is closed (the run is over, or the server is gone) it sends what is left, and
gives up after a few attempts without progress.
"""

import argparse
import contextlib
import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import urlsplit

from mlflow.exceptions import MlflowException
from pydantic import ValidationError
from requests import HTTPError
from sqlalchemy.exc import SQLAlchemyError

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.tracking import TRACKING_INCOMPLETE, TRACKING_UNREACHABLE
from anchorage.api.logs import log_to_stderr
from anchorage.api.mistakes import without_password
from anchorage.engine.tracking.connecting import limit_connecting
from anchorage.engine.tracking.mlflow_run import MlflowRun
from anchorage.engine.tracking.outbox import EVENTS, PROGRAMS, read_events
from anchorage.engine.tracking.priority import catch_up
from anchorage.engine.tracking.process import LOCK
from anchorage.engine.tracking.progress import Progress
from anchorage.engine.tracking.refusal import refusal_hint
from anchorage.transport.http_proxies import proxy_variable
from anchorage.transport.retry import RetryPolicy

POLL_SECONDS = 0.3
LONGEST_PAUSE_SECONDS = 30.0
LAST_ATTEMPTS = 3
"""Attempts in a row without progress after which a run that is over is given up."""
LAST_ATTEMPTS_LOCKED = 20
"""The same while another process holds an SQLite store, such as a backup: about a quarter of an hour, with MLflow's own 20 seconds and the pauses."""
TOO_LARGE = "failed with error code 413 "
"""In MLflow's words for what a proxy before it found too large."""
RAISE_LIMIT = "raise the body limit of the proxy before MLflow (for nginx: nginx.ingress.kubernetes.io/proxy-body-size)"
LONGEST_REASON = 200
"""Characters of what MLflow says that are kept."""
TROUBLE = (MlflowException, SQLAlchemyError, OSError)
"""What MLflow, its stores and the network raise."""
REFUSED = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST"})
"""MLflow's codes for an event that no later attempt would get through."""

log = logging.getLogger("anchorage.engine.tracking")


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
        place = without_password(uri)
        if self._progress.uri != place:  # another store has nothing yet
            self._progress = Progress(uri=place)
        self._run: MlflowRun | None = None
        self.ended = False

    def send_all(self) -> None:
        """Send what waits, event by event, and what comes meanwhile, such as the completed model card during the last models.

        Raises
        ------
        MlflowException, SQLAlchemyError, OSError
            MLflow does not take it now; what was sent stays sent.
        """
        try:
            self._send_all()
        except TROUBLE as error:
            self._note_trouble(self.explain(error))
            raise
        self._note_trouble("")

    def _send_all(self) -> None:
        if self._run is None and self._progress.offset:
            self._reopen()
        while events := list(read_events(self._folder, self._progress.offset)):
            self._send_each(events)

    def _send_each(self, events: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        for offset, event in events:
            what = f"round {event['round']}" if event["kind"] == "round" else f"the run's {event['kind']}"
            self._progress.left_out.pop(what, None)
            with self._refusals(what):
                self._send(event, what)
            self._progress.offset, self._progress.trouble = offset, ""
            self._progress.write(self._folder)
            for name in event.get("arrays", {}).values():
                (self._folder / name).unlink(missing_ok=True)

    @property
    def offset(self) -> int:
        """Bytes of the events that are done."""
        return self._progress.offset

    def explain(self, error: Exception) -> str:
        """Return what an error says, and what to do where that is known."""
        message = first_line(error)
        if is_locked(error):
            return f"{message}; another process holds the file: wait, or end it"
        if hint := refusal_hint(error):
            return f"{message}; {hint}"
        variable = proxy_variable(self._uri, os.environ)
        if variable:
            host = urlsplit(self._uri).hostname
            return f"{message}; the way is through the proxy of {variable}: add {host} to NO_PROXY if it needs none"
        return message

    def _note_trouble(self, why: str) -> None:
        if self._progress.trouble != why:
            self._progress.trouble = why
            self._progress.write(self._folder)

    def _reopen(self) -> None:
        """Continue the run of an earlier process."""
        for offset, event in read_events(self._folder, 0):
            if offset <= self._progress.offset:
                self._note_end(event)
                if event["kind"] == "run":
                    self._run = MlflowRun.open(self._uri, event)

    def _note_end(self, event: Mapping[str, Any]) -> None:
        """Note whether an event ends the run; a completed card comes before or after the end."""
        if event["kind"] != "card":
            self.ended = event["kind"] == "end"

    @contextlib.contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        """Note what MLflow would refuse at every attempt, and go on.

        Raises
        ------
        MlflowException
            A later attempt may get through.
        """
        try:
            yield
        except MlflowException as error:
            if TOO_LARGE in str(error):
                self._leave_out(what, f"{first_line(error)}; {RAISE_LIMIT}")
            elif error.error_code not in REFUSED or is_locked(error):
                raise
            else:
                self._leave_out(what, first_line(error))
        except HTTPError as error:  # of artifacts
            if error.response is None or error.response.status_code != 413:
                raise
            size = int(error.request.headers.get("Content-Length") or 0) if error.request is not None else 0
            self._leave_out(what, f"HTTP status 413 for a file of {size / 1e6:.1f} MB; {RAISE_LIMIT}")

    @contextlib.contextmanager
    def _refusals_of_card(self) -> Iterator[None]:
        """Note that a model card is of another format, and go on."""
        try:
            yield
        except ValidationError as error:
            self._leave_out("the model card's figures", f"it is no model card: {error.errors()[0]['msg']}")

    def _leave_out(self, what: str, why: str) -> None:
        log.warning("%s: %s is left out: %s", TRACKING_INCOMPLETE.code, what, why)
        self._progress.leave_out(what, why)

    def _send(self, event: Mapping[str, Any], what: str) -> None:
        self._note_end(event)
        if event["kind"] == "run":
            self._run = MlflowRun.open(self._uri, event)
            self._progress.run_id = self._run.run_id
            self._progress.experiment_id = self._run.experiment_id
            self._run.describe(event)
        elif self._run is None:
            self._leave_out(what, "there is no run that it belongs to")
        elif event["kind"] == "round":
            self._run.log_round(event, self._folder)
        elif event["kind"] == "models":
            self._progress.drawn = False
            self._log_card(self._run, event)
        elif event["kind"] == "card":
            versions = {self._progress.final_version, self._progress.best_version} - {""}
            with self._refusals_of_card():
                self._run.add_card(Path(event["models"]), versions)
        elif event["kind"] == "end":
            self._finish(self._run, event)

    def _finish(self, run: MlflowRun, event: Mapping[str, Any]) -> None:
        if event["models"]:
            self._log_card(run, event)
            self._progress.final_version = self._register(run, "final", Path(event["models"]))
            self._progress.best_version = self._register(run, "best", Path(event["models"]))
        run.end(event["code"])
        rmtree(self._folder / PROGRAMS, ignore_errors=True)

    def _log_card(self, run: MlflowRun, event: Mapping[str, Any]) -> None:
        with self._refusals("the model card"), self._refusals_of_card():
            run.log_card(Path(event["models"]), draws=not self._progress.drawn)
            self._progress.drawn = True

    def _register(self, run: MlflowRun, role: str, models: Path) -> str:
        """Register a model, and return its version; empty where that cannot be."""
        what, version = f"the {role} model", ""
        self._progress.left_out.pop(what, None)
        try:
            with self._refusals(what):
                version = run.register(role, models, self._progress.versions, self._folder)
                self._progress.registered_model = run.registered_model
        except AnchorageError as error:
            self._leave_out(what, str(error))
        self._progress.write(self._folder)
        return version


def serve(sending: Sending, folder: Path, gone: threading.Event) -> int:
    """Send until the run's end is sent, or the server is `gone` and no more is to come; return the exit status."""
    policy, failures = RetryPolicy(2 * POLL_SECONDS, LONGEST_PAUSE_SECONDS), 0
    size = -1
    while True:
        before, server_gone = sending.offset, gone.is_set()
        try:
            if failures or (folder / EVENTS).stat().st_size != size:
                size = (folder / EVENTS).stat().st_size
                sending.send_all()
                failures = 0
        except TROUBLE as error:
            log.warning("%s %s: %s", TRACKING_UNREACHABLE.code, TRACKING_UNREACHABLE.reason, sending.explain(error))
            failures = failures + 1 if sending.offset == before else 1
            if server_gone and failures >= (LAST_ATTEMPTS_LOCKED if is_locked(error) else LAST_ATTEMPTS):
                return TRACKING_UNREACHABLE.exit_code
        if not failures and (server_gone or sending.ended):
            return 0
        pause = policy.pause(failures) if failures else POLL_SECONDS
        if server_gone:
            time.sleep(pause)
        elif gone.wait(pause):
            size, failures = -1, 0


def is_locked(error: Exception) -> bool:
    """Return whether another process holds an SQLite store, which passes."""
    return "database is locked" in str(error)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, without the passwords that a URI may carry."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return without_password(line)[:LONGEST_REASON]


def watch_input(gone: threading.Event) -> None:
    """Catch up once the server writes a line, as it does when the rounds are over, and set `gone` at the end of standard input."""
    while os.read(sys.stdin.fileno(), 4096):
        catch_up()
    catch_up()
    gone.set()


def main() -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="anchorage.engine.tracking", description="Send an outbox to MLflow.")
    parser.add_argument("--outbox", type=Path, required=True, help="folder of the outbox")
    parser.add_argument("--uri", required=True, help="MLflow tracking URI")
    arguments = parser.parse_args()
    log_to_stderr(logging.WARNING)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # says again, with the address, what `serve` logs
    limit_connecting()
    folder: Path = arguments.outbox
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the sender of a killed server still sends its last events
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        gone = threading.Event()
        threading.Thread(target=watch_input, args=(gone,), daemon=True, name="input").start()
        return serve(Sending(folder, arguments.uri), folder, gone)

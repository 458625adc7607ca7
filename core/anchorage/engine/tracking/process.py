"""The sender as a child process of the server."""

import math
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.tracking import TRACKING_INCOMPLETE, TRACKING_UNREACHABLE
from anchorage.engine.tracking.outbox import read_events
from anchorage.engine.tracking.progress import Progress
from anchorage.transport.http_proxies import without_proxy

IDLE_SECONDS = 120.0
"""How long the sender may make no progress at the end of a run, longer than it waits for one answer of a tracking server."""
LOCK = "sender.lock"
"""Held by the process that sends an outbox; contains its id."""
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # its lines have no time, and crowd out those of the server
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "50",
}
"""What MLflow is told before it is imported: to be quiet, to report to nobody, and to give up soon."""
_LOOK_SECONDS = 0.25
_LAST_WORDS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What MLflow has of a run: ids as MLflow gives them, empty where there is none."""

    run_id: str
    registered_model: str
    model_version: str
    best_model_version: str
    missing: AnchorageError | None
    """What MLflow does not have: TrackingUnreachable where a later start sends it, TrackingIncomplete where nothing can."""


class ProgressTimeout:
    """Limits the time without progress, and the whole time.

    Parameters
    ----------
    idle_seconds : float
        Longest time without progress.
    at_most_seconds : float
        Longest time in all.
    now : float
        Seconds of any steady clock.
    """

    def __init__(self, idle_seconds: float, at_most_seconds: float, now: float) -> None:
        self._idle = idle_seconds
        self._ends = now + at_most_seconds
        self._moved = now
        self._last_progress: object = None

    def is_over(self, progress: object, now: float) -> bool:
        """Return whether to give up; `progress` is any value that changes with progress."""
        if progress != self._last_progress:
            self._last_progress, self._moved = progress, now
        return now - self._moved >= self._idle or now >= self._ends


class Sender:
    """Starts ``python -m anchorage.engine.tracking``, which sends an outbox's events while they come.

    The process ends by itself after the run's end is sent, and when this process is gone.

    Parameters
    ----------
    outbox : Path
        The outbox's folder.
    uri : str
        MLflow tracking URI.
    """

    def __init__(self, outbox: Path, uri: str) -> None:
        self._outbox, self._uri = outbox, uri
        self._process = self._start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "anchorage.engine.tracking", "--outbox", str(self._outbox), "--uri", self._uri]
        threads = {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment = {**os.environ, **ENVIRONMENT, **threads, **without_proxy(self._uri, os.environ)}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)

    def hurry(self) -> None:
        """Tell the process that the rounds are over, so that it need not leave the processor to them any longer."""
        with suppress(BrokenPipeError):  # it has ended
            os.write(self._input.fileno(), b"\n")

    def finish(self, idle_seconds: float = IDLE_SECONDS, at_most_seconds: float = math.inf) -> Sent:
        """Let the process send what waits, as long as it makes progress, and return what MLflow has then.

        Processor time counts as progress: on a busy machine the process may need minutes until it sends its first event. One that has
        ended before everything was sent is started again, and so is one that sent everything while another event came.

        Parameters
        ----------
        idle_seconds : float
            Longest time without progress.
        at_most_seconds : float
            Longest time in all.
        """
        timeout = ProgressTimeout(idle_seconds, at_most_seconds, time.monotonic())
        while True:
            self._input.close()
            if self._process.poll() is not None and what_is_sent(self._outbox, "").missing is not None:
                self._process = self._start()
                self._input.close()
            while self._process.poll() is None and not timeout.is_over(self._progress(), time.monotonic()):
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LOOK_SECONDS)
            if self._process.poll() is None:
                self._end()
                return what_is_sent(self._outbox, "the process that sends it was ended because it took too long")
            status = self._process.returncode
            sent = what_is_sent(self._outbox, f"the process that sends it ended with status {status}" if status else "")
            if status or sent.missing is None or sent.missing.failure is not TRACKING_UNREACHABLE:
                return sent  # else an event came after the process had sent everything, while it ended

    def _progress(self) -> tuple[Progress, float]:
        """Return what changes while events are sent, by this process or by one that a killed server left."""
        return Progress.read(self._outbox), max(_processor_seconds(pid) for pid in (self.pid, self._holder()))

    def _holder(self) -> int:
        """Return the id of the process that holds the outbox."""
        with suppress(FileNotFoundError, ValueError):
            return int((self._outbox / LOCK).read_text())
        return self.pid

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_LAST_WORDS_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def what_is_sent(outbox: Path, why: str) -> Sent:
    """Return what MLflow has of an outbox's events; `why` it does not have more, where the sender itself says nothing."""
    progress = Progress.read(outbox)
    ids = (progress.run_id, progress.registered_model, progress.final_version, progress.best_version)
    waiting = sum(1 for _ in read_events(outbox, progress.offset))
    if waiting:
        records = "1 record is" if waiting == 1 else f"{waiting} records are"
        cause = progress.trouble or why
        message = f"{records} not in MLflow yet" + (f": {cause}" if cause else "")
        return Sent(*ids, AnchorageError(TRACKING_UNREACHABLE, message))
    if progress.left_out:
        what, reason = next(iter(progress.left_out.items()))
        more = f" (and {len(progress.left_out) - 1} more)" if len(progress.left_out) > 1 else ""
        return Sent(*ids, AnchorageError(TRACKING_INCOMPLETE, f"MLflow does not have {what}: {reason}{more}"))
    return Sent(*ids, None)


def _processor_seconds(pid: int) -> float:
    """Return the processor time that a process has had, 0 where there is none."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)

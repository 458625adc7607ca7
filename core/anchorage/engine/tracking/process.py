"""The sender as a child process of the server."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

RESULT = "result.json"
_LAST_WORDS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a run is in MLflow: ids as MLflow gives them, empty where there is none."""

    run_id: str
    registered_model: str
    model_version: str
    best_model_version: str


class Sender:
    """Starts ``python -m anchorage.engine.tracking.sender``, which sends an outbox's events while they come.

    The process ends by itself after the run's end is sent, and when this process is gone.

    Parameters
    ----------
    outbox : Path
        The outbox's folder.
    uri : str
        MLflow tracking URI.
    """

    def __init__(self, outbox: Path, uri: str) -> None:
        self._outbox = outbox
        command = [sys.executable, "-m", "anchorage.engine.tracking.sender", "--outbox", str(outbox), "--uri", uri]
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}
        brief = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MPLBACKEND": "Agg"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **quiet, **brief, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    def finish(self, timeout_seconds: float) -> Sent | None:
        """Let the process send what waits, at most so long; return where the run is, None where events remain unsent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(_LAST_WORDS_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        return read_result(self._outbox) if self._process.returncode == 0 else None


def read_result(outbox: Path) -> Sent | None:
    """Return where a run is in MLflow, as far as its sender has written it down."""
    try:
        values = json.loads((outbox / RESULT).read_text())
    except FileNotFoundError:
        return None
    return Sent(values["runId"], values["registeredModel"], values["modelVersion"], values["bestModelVersion"])

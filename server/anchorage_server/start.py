"""When a run started, across restarts of its server, and from which weights: its deadline counts from then."""

import json
import logging
from pathlib import Path

from anchorage.api.regular_files import read_regular
from anchorage.engine.store.durable import storage_errors
from anchorage.transport.files import write_atomically

_log = logging.getLogger(__name__)


class RunStart:
    """The first start, kept in a file. The time between a stop that was asked for and the next start does not count.

    Parameters
    ----------
    file : Path
        Where it is kept.
    now : float
        Seconds since the epoch.
    earliest : float or None
        When the first round was committed; None before that.
    initial : str
        Which weights a run starts from that starts now.

    Raises
    ------
    AnchorageError
        The file cannot be read or written.
    """

    def __init__(self, file: Path, now: float, earliest: float | None, initial: str = "") -> None:
        self._file = file
        self.first = now if earliest is None else earliest
        self._paused = 0.0
        self.initial = initial
        """Which weights the run started from, whatever lies under their name now."""
        with storage_errors("read when the run started", file):
            content = read_regular(file) if file.exists() else b""
        if content:
            try:
                self._read(content, now, begun=earliest is not None)
            except (ValueError, KeyError, TypeError):
                _log.warning("when the run started is not as it was written", extra={"file": str(file)})
        self._write(None)

    @property
    def counted_from(self) -> float:
        """The first start, moved by the time for which the run was stopped; seconds since the epoch."""
        return self.first + self._paused

    def note_stop(self, now: float) -> None:
        """Note a stop that was asked for.

        Raises
        ------
        AnchorageError
            The file cannot be written.
        """
        self._write(now)

    def _read(self, content: bytes, now: float, *, begun: bool) -> None:
        values = json.loads(content)
        first, paused, stopped = float(values["first"]), float(values["paused"]), values["stopped"]
        if stopped is not None:
            paused += max(0.0, now - float(stopped))
        self.first, self._paused = first, paused
        if begun:
            self.initial = str(values.get("initial", self.initial))

    def _write(self, stopped: float | None) -> None:
        values = {"first": self.first, "paused": self._paused, "stopped": stopped, "initial": self.initial}
        with storage_errors("note when the run started", self._file):
            write_atomically(self._file, json.dumps(values).encode())

"""Events that wait on disk for MLflow: one JSON line each, larger arrays beside them. Appending is cheap and never fails a run."""

import errno
import json
import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors.tracking import TRACKING_INCOMPLETE

EVENTS = "events.jsonl"
LARGEST_EVENTS = 256 << 20
"""Bytes of events that are kept; later ones are dropped, with a warning."""
LARGEST_ARRAYS = 256 << 20
"""Bytes of arrays that wait to be sent; later ones are left out."""

PROGRAMS = "programs"
"""Folder of the models as programs."""

log = logging.getLogger(__name__)


def program_file(folder: Path, digest: str) -> Path:
    """Return where the program of the model with a digest lies, where the server has exported it; the sender removes it."""
    return folder / PROGRAMS / digest / "model.pt2"


class Outbox:
    """A folder of events. One process appends, another sends; either may be killed at any point.

    Parameters
    ----------
    folder : Path
        Made if there is none.

    Raises
    ------
    OSError
        The folder cannot be made or written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(folder / EVENTS, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        size = os.fstat(self._handle).st_size
        if size and os.pread(self._handle, 1, size - 1) != b"\n":  # a crash tore the last line
            os.write(self._handle, b"\n")
        self.dropped = 0
        """Events that this process could not keep."""

    def append(self, kind: str, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Note an event. Returns when the operating system has it; a full disk is logged and the event dropped.

        Parameters
        ----------
        kind : str
            ``run``, ``round``, ``models``: they and their card are written, ``end``, or ``card``: the model card was completed.
        values : mapping of str to Any
            What JSON can hold.
        arrays : mapping of str to ndarray, optional
            Larger arrays, in files of their own that the sender removes.
        """
        try:
            line = json.dumps({"kind": kind, **values, "arrays": self._save(arrays or {})}).encode() + b"\n"
            size = os.fstat(self._handle).st_size
            if size + len(line) > LARGEST_EVENTS:
                raise OSError(f"{EVENTS} has reached {LARGEST_EVENTS >> 20} MiB")
            if os.write(self._handle, line) < len(line):
                os.ftruncate(self._handle, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            if not self.dropped:
                log.warning("%s: an event is not kept for MLflow: %s", TRACKING_INCOMPLETE.code, error)
            self.dropped += 1

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Yield every event that was appended, by this process or an earlier one."""
        for _, event in read_events(self._folder, 0):
            yield event

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)

    def _save(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
        """Write arrays as .npy files and return their names."""
        waiting = sum(path.stat().st_size for path in self._folder.glob("*.npy")) if arrays else 0
        names = {}
        for key, array in arrays.items():
            if waiting + array.nbytes <= LARGEST_ARRAYS:
                names[key] = f"{key}-{uuid.uuid4().hex}.npy"
                np.save(self._folder / names[key], array, allow_pickle=False)
                waiting += array.nbytes
        return names


def read_events(folder: Path, offset: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the events from a byte offset on, each with the offset behind it; a line that was torn is left out."""
    with (folder / EVENTS).open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                event = json.loads(line)
            except ValueError:
                continue
            yield offset, event

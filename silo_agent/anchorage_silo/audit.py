"""The local, append-only log of everything that leaves the hospital.

One JSON object a line; `hash` is SHA-256 over the line before it and the rest of this line, so a line that was changed, removed or put in
between shows. It names what was sent and never holds values of images, weights or keys.
"""

import errno
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from anchorage.api.errors import AnchorageError, silo


class AuditLog:
    """An audit log that is open for appending.

    Parameters
    ----------
    path : Path
        The file; it is made where it is missing, mode 0600.
    now : callable
        Seconds since the epoch.

    Raises
    ------
    AnchorageError
        The lines do not follow from each other, or the file cannot be written.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._announced: set[str] = set()
        self._hash = ""
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        self._follow()

    @property
    def announced(self) -> frozenset[str]:
        """The train tasks that were ever announced."""
        with self._lock:
            return frozenset(self._announced)

    def record(
        self, kind: str, task: str = "", *, nbytes: int = 0, side: Iterable[str] = (), digest: str = "", code: str = ""
    ) -> None:
        """Write a line, before what it speaks of is sent.

        Parameters
        ----------
        kind : str
            ``enrol``, ``renew``, ``join``, ``announce``, ``update``, ``evaluation``, ``progress`` or ``failure``.
        task : str
            The task that it belongs to.
        nbytes : int
            Bytes of the update or of the request.
        side : iterable of str
            Names of what is told beside it.
        digest : str
            Content address of the update.
        code : str
            The failure that is reported.

        Raises
        ------
        AnchorageError
            It cannot be written; then nothing may be sent.
        """
        with self._lock:
            entry: dict[str, Any] = {"time": self._now(), "kind": kind, "task": task, "bytes": nbytes}
            entry |= {"side": sorted(side), "digest": digest, "code": code}
            text = json.dumps(entry)
            chained = _chain(self._hash, text)
            self._append(f'{text[:-1]}, "hash": "{chained}"}}\n'.encode())
            self._hash = chained
            if kind == "announce":
                self._announced.add(task)

    def close(self) -> None:
        """Close the file; who records from now on fails."""
        with self._lock:
            os.close(self._file)
            self._file = -1

    def _append(self, line: bytes) -> None:
        """Write a line whole or not at all."""
        try:
            size = os.fstat(self._file).st_size
            if os.write(self._file, line) < len(line):
                os.ftruncate(self._file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._unwritable(error) from error

    def _follow(self) -> None:
        """Check every line and remember what was announced; the torn end of a line that a crash left is cut off."""
        text = self._path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.ftruncate(self._file, whole)
        for number, line in enumerate(text[:whole].splitlines(), start=1):
            body, _, tail = line.decode(errors="replace").rpartition(', "hash": "')
            chained = _chain(self._hash, body + "}")
            if tail != f'{chained}"}}':
                found = f"line {number} of {self._path} does not follow from the lines before it"
                raise AnchorageError(silo.AUDIT_BROKEN, found)
            self._hash = chained
            entry = json.loads(line)
            if entry["kind"] == "announce":
                self._announced.add(entry["task"])

    def _unwritable(self, error: OSError) -> AnchorageError:
        return AnchorageError(silo.AUDIT_UNWRITABLE, f"{self._path}: {error.strerror or error}")


def _chain(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()

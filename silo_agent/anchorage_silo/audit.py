"""The append-only log of everything that leaves the hospital.

One JSON object per line. `hash` is the SHA-256 of the previous line's hash and the rest of this line, so that a changed, removed or inserted line is
detected. Entries name what was sent; they never hold values of images, weights or keys.
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
    """An audit log, open for appending; the file is created with mode 0600 if it is missing.

    Raises
    ------
    AnchorageError
        The hash chain of an existing log is broken, or the file cannot be written.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._run = ""
        self._sent: dict[str, set[tuple[str, str, str]]] = {"announce": set(), "evaluation": set()}
        self._hash = ""
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        self._verify()

    def sent(self, kind: str, *, whole: bool) -> frozenset[tuple[str, str]]:
        """Return tasks and digests of all entries of a kind, ``announce`` or ``evaluation``: of the whole log, or of the run joined last."""
        with self._lock:
            return frozenset((task, digest) for run, task, digest in self._sent[kind] if whole or run == self._run)

    def record(
        self,
        kind: str,
        task: str = "",
        *,
        nbytes: int = 0,
        auxiliary: Iterable[str] = (),
        digest: str = "",
        code: str = "",
    ) -> None:
        """Append an entry; call it before the message is sent.

        Parameters
        ----------
        kind : str
            ``enrol``, ``renew``, ``approval``, ``join``, ``announce``, ``update``, ``evaluation``, ``progress`` or ``failure``.
        task : str
            Id of the task; empty for messages without one.
        nbytes : int
            Size of the update or request in bytes.
        auxiliary : iterable of str
            Names of the auxiliary data in the message.
        digest : str
            Digest of the update, of the model that was scored, of what was approved, or of the run's name.
        code : str
            Code of the reported failure.

        Raises
        ------
        AnchorageError
            The log cannot be written; the message must not be sent.
        """
        with self._lock:
            entry: dict[str, Any] = {"time": self._now(), "kind": kind, "task": task, "bytes": nbytes}
            entry |= {"auxiliary": sorted(auxiliary), "digest": digest, "code": code}
            text = json.dumps(entry)
            chained = _chain(self._hash, text)
            self._append(f'{text[:-1]}, "hash": "{chained}"}}\n'.encode())
            self._hash = chained
            self._note(entry)

    def close(self) -> None:
        """Close the file; later calls of `record` fail."""
        with self._lock:
            os.close(self._file)
            self._file = -1

    def _append(self, line: bytes) -> None:
        """Append a complete line, which a power failure does not take away, or nothing."""
        try:
            size = os.fstat(self._file).st_size
            if os.write(self._file, line) < len(line):
                os.ftruncate(self._file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritable(error) from error

    def _verify(self) -> None:
        """Verify the hash chain and collect the tasks; an incomplete last line, left by a crash, is removed."""
        text = self._path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.ftruncate(self._file, whole)
        for number, line in enumerate(text[:whole].splitlines(), start=1):
            body, _, tail = line.decode(errors="replace").rpartition(', "hash": "')
            chained = _chain(self._hash, body + "}")
            if tail != f'{chained}"}}':
                found = f"line {number} of {self._path} does not match the hash of the lines before it"
                raise AnchorageError(silo.AUDIT_BROKEN, found)
            self._hash = chained
            self._note(json.loads(line))

    def _note(self, entry: dict[str, Any]) -> None:
        if entry["kind"] == "join":
            self._run = entry["digest"]
        elif entry["kind"] in self._sent:
            self._sent[entry["kind"]].add((self._run, entry["task"], entry["digest"]))

    def _unwritable(self, error: OSError) -> AnchorageError:
        return AnchorageError(silo.AUDIT_UNWRITABLE, f"{self._path}: {error.strerror or error}")


def _chain(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()

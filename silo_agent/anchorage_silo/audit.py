"""The append-only log of everything that leaves the hospital.

One JSON object per line. `hash` is the SHA-256 of the previous line's hash and the rest of this line, so that a changed, removed or inserted line is
detected. A signed head beside it (`audit_head`) shows that its end, or all of it, was removed, or that it was written anew. Entries name what was
sent; they never hold values of images, weights or keys.
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
from anchorage_silo.audit_head import AuditHead

AUDIT_FILE = "audit.jsonl"
"""The log, in the agent's state folder."""


class AuditLog:
    """An audit log, open for appending; the file is created with mode 0600 if it is missing.

    Raises
    ------
    AnchorageError
        The hash chain of an existing log is broken, or it is not the one that was signed; or the file cannot be written.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._run = ""
        self._sent: dict[str, set[tuple[str, str, str]]] = {"announce": set(), "evaluation": set()}
        self._lines, self._hash = 0, ""
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        self._verify()
        self._head = AuditHead(path)

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
            self._lines, self._hash = self._lines + 1, chained
            self._note(entry)
            try:
                self._head.sign(self._lines, chained)
            except OSError as error:
                raise self._unwritable(error) from error

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
        """Verify the log and collect what was sent; an incomplete last line, left by a crash, is removed."""
        text = self._path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.ftruncate(self._file, whole)
        for entry in verified(self._path):
            self._lines, self._hash = self._lines + 1, entry["hash"]
            self._note(entry)

    def _note(self, entry: dict[str, Any]) -> None:
        if entry["kind"] == "join":
            self._run = entry["digest"]
        elif entry["kind"] in self._sent:
            self._sent[entry["kind"]].add((self._run, entry["task"], entry["digest"]))

    def _unwritable(self, error: OSError) -> AnchorageError:
        return AnchorageError(silo.AUDIT_UNWRITABLE, f"{self._path}: {error.strerror or error}")


def verified(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a log, in which an incomplete last line is left out; another process may be writing it.

    Raises
    ------
    AnchorageError
        The log cannot be read, its hash chain is broken, or it is not the one whose head was signed.
    """
    entries: list[dict[str, Any]] = []
    try:
        head = AuditHead(path)
        text = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise AnchorageError(silo.AUDIT_UNWRITABLE, f"{path}: {error.strerror or error}") from error
    last = ""
    for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), start=1):
        body, _, tail = line.decode(errors="replace").rpartition(', "hash": "')
        last = _chain(last, body + "}")
        if tail != f'{last}"}}':
            found = f"line {number} of {path} does not match the hash of the lines before it"
            raise AnchorageError(silo.AUDIT_BROKEN, found)
        entries.append(json.loads(line))
    head.check([entry["hash"] for entry in entries])
    return entries


def _chain(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()

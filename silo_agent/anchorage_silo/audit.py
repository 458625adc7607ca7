"""The append-only log of everything that leaves the hospital, a line each (`chained_log`).

Entries name what was sent; they never hold values of images, weights or keys.
"""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from anchorage.api.errors import silo
from anchorage_silo.chained_log import ChainedFile, ChainedLog, Entry

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
        self._now = now
        self._lock = threading.Lock()
        self._run = ""
        self._sent: dict[str, set[tuple[str, str, str]]] = {"announce": set(), "evaluation": set(), "reveal": set()}
        self._log = ChainedLog(_file(path))
        for entry in self._log.entries:
            self._note(entry)

    def sent(self, kind: str, *, whole: bool) -> frozenset[tuple[str, str]]:
        """Return tasks and digests of all entries of a kind, ``announce``, ``evaluation`` or ``reveal``: of the whole log, or of the last run."""
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
            ``enrol``, ``renew``, ``approval``, ``join``, ``announce``, ``update``, ``evaluation``, ``keys``, ``reveal``, ``progress`` or ``failure``.
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
            self._log.append(entry)
            self._note(entry)

    def close(self) -> None:
        """Close the file; later calls of `record` fail."""
        with self._lock:
            self._log.close()

    def _note(self, entry: dict[str, Any]) -> None:
        if entry["kind"] == "join":
            self._run = entry["digest"]
        elif entry["kind"] in self._sent:
            self._sent[entry["kind"]].add((self._run, entry["task"], entry["digest"]))


def verified(path: Path) -> list[Entry]:
    """Return the entries of a log, as `ChainedFile.read` does."""
    return _file(path).read()


def _file(path: Path) -> ChainedFile:
    return ChainedFile(path, silo.AUDIT_BROKEN, silo.AUDIT_UNWRITABLE, {"kind": str, "task": str, "digest": str})

"""The append-only log of everything that leaves the hospital, a line each (`chained_log`).

Entries name what was sent; they never hold values of images, weights or keys.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from anchorage.api.errors import AnchorageError, silo
from anchorage_silo.chained_log import ChainedFile, ChainedLog, Entry, Reading

AUDIT_FILE = "audit.jsonl"
"""The log, in the agent's state folder."""
SEGMENT_BYTES = 64 << 20
"""Size at which it is set aside as a segment, and the next one begins."""
ROLLBACK = "rollback"
"""Kind of an entry that says that the log lacks what the server keeps the head of."""

_COUNTED = ("announce", "evaluation")
_TRACKED_KINDS = (*_COUNTED, "reveal", ROLLBACK)


class SentMessages:
    """What entries of a log say was sent, by which limits are counted."""

    def __init__(self) -> None:
        self._run = ""
        self._sent: dict[str, set[tuple[str, str]]] = {kind: set() for kind in _TRACKED_KINDS}
        self._by_run: dict[tuple[str, str], set[tuple[str, str]]] = {}
        """The same by kind and run."""
        self._missing = dict.fromkeys(_COUNTED, 0)
        self.missing_run = ""
        """The run that segments which are not here any more ended with; empty where none are missing."""

    def read_sent(self, kind: str, *, all_runs: bool) -> frozenset[tuple[str, str]]:
        """Return tasks and digests of all entries of a kind, such as ``reveal``: of the whole log that is here, or of the last run."""
        return frozenset(self._tasks_and_digests(kind, all_runs=all_runs))

    def number_sent(self, kind: str, *, all_runs: bool) -> int:
        """Return the number of entries of a kind, each task and digest once: of the whole log, segments that went included, or of the last run."""
        missing = self._missing.get(kind, 0) if all_runs else 0
        return len(self._tasks_and_digests(kind, all_runs=all_runs)) + missing

    def _tasks_and_digests(self, kind: str, *, all_runs: bool) -> Collection[tuple[str, str]]:
        return self._sent[kind] if all_runs else self._by_run.get((kind, self._run), ())

    def note(self, entry: Entry) -> None:
        """Count an entry."""
        if entry["kind"] == "join":
            self._run = entry["digest"]
        elif entry["kind"] in self._sent:
            sent = entry["task"], entry["digest"]
            self._sent[entry["kind"]].add(sent)
            self._by_run.setdefault((entry["kind"], self._run), set()).add(sent)

    def note_missing(self, opening: Entry, path: Path) -> None:
        """Count the entries of segments that are not here, from the first line that is.

        Raises
        ------
        AnchorageError
            The line does not say how many there were.
        """
        run, counts = opening.get("run"), {kind: opening.get(kind) for kind in _COUNTED}
        self._missing = {kind: count for kind, count in counts.items() if isinstance(count, int)}
        if not isinstance(run, str) or len(self._missing) < len(counts):
            raise AnchorageError(silo.AUDIT_BROKEN, f"the first line of {path} is none of a segment")
        self._run = self.missing_run = run

    def opening(self) -> Entry:
        """Return what a segment says of those before it, for the day when they are not here any more."""
        counts = {kind: len({entry[1:] for entry in self._sent[kind]}) + self._missing[kind] for kind in _COUNTED}
        return {"run": self._run, **counts}


class AuditLog:
    """An audit log, open for appending; the file is created with mode 0600 if it is missing.

    Parameters
    ----------
    path : Path
        The file; earlier segments lie beside it.
    now : callable
        Returns the time in seconds since the epoch.
    segment_bytes : int
        As `SEGMENT_BYTES`.

    Raises
    ------
    AnchorageError
        The hash chain of an existing log is broken, or it is not the one that was signed; or the file cannot be written.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.path = path
        self._now, self._segment_bytes = now, segment_bytes
        self._lock = threading.Lock()
        self._messages, self._empty = SentMessages(), True
        self._log = ChainedLog(_file(path), self._note)

    @property
    def head(self) -> tuple[int, str]:
        """Number of lines, earlier segments' included, and the hash of the last."""
        with self._lock:
            return self._log.head

    def read_sent(self, kind: str, *, all_runs: bool) -> frozenset[tuple[str, str]]:
        """Return tasks and digests of all entries of a kind, such as ``reveal``: of the whole log that is here, or of the last run."""
        with self._lock:
            return self._messages.read_sent(kind, all_runs=all_runs)

    def number_sent(self, kind: str, *, all_runs: bool) -> int:
        """Return the number of entries of a kind, as `SentMessages.number_sent` does."""
        with self._lock:
            return self._messages.number_sent(kind, all_runs=all_runs)

    def record(
        self,
        kind: str,
        task: str = "",
        *,
        nbytes: int = 0,
        auxiliary: Iterable[str] = (),
        digest: str = "",
        code: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Append an entry; call it before the message is sent.

        Parameters
        ----------
        kind : str
            ``enrol``, ``renew``, ``approval``, ``join``, ``announce``, ``update``, ``evaluation``, ``keys``, ``reveal``, ``progress``,
            ``failure`` or ``rollback``.
        task : str
            Id of the task; empty for messages without one.
        nbytes : int
            Size of the update or request in bytes.
        auxiliary : iterable of str
            Names of the auxiliary data in the message.
        digest : str
            Digest of the update, of the model that was scored, of what was approved, of the run's name, or the hash that the server keeps.
        code : str
            Code of the reported failure.
        facts : mapping, optional
            What else a policy has rules on, by which `anchorage-silo policy check` judges the entry (`policy_check`).

        Raises
        ------
        AnchorageError
            The log cannot be written, or segments with lines of the run are not here; the message must not be sent.
        """
        with self._lock:
            if kind == "join" and digest == self._messages.missing_run != "":
                detail = f"segments of {self.path} with lines of this run were moved away; put them back"
                raise AnchorageError(silo.AUDIT_BROKEN, detail)
            entry: Entry = {"time": self._now(), "kind": kind, "task": task, "bytes": nbytes}
            entry |= {"auxiliary": sorted(auxiliary), "digest": digest, "code": code, **(facts or {})}
            self._log.continue_in(self._opening, self._segment_bytes)
            self._log.append(entry)
            self._note(entry)

    def close(self) -> None:
        """Close the file; later calls of `record` fail."""
        with self._lock:
            self._log.close()

    def _opening(self) -> Entry:
        opening = {"time": self._now(), "kind": "segment", "task": "", "bytes": 0, "auxiliary": [], "code": ""}
        return opening | self._messages.opening()

    def _note(self, entry: Entry) -> None:
        first, self._empty = self._empty, False
        if first and entry["kind"] == "segment":
            self._messages.note_missing(entry, self.path)
        else:
            self._messages.note(entry)


def verify(path: Path) -> Reading:
    """Return a reading of a log, which checks it."""
    return Reading(_file(path))


def _file(path: Path) -> ChainedFile:
    return ChainedFile(path, silo.AUDIT_BROKEN, silo.AUDIT_UNWRITABLE, {"kind": str, "task": str, "digest": str})

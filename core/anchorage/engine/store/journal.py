"""The journal: one line per committed round, each with a schema version and a checksum."""

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import JOURNAL_DAMAGED
from anchorage.api.regular_files import read_regular
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.durable import storage_errors
from anchorage.engine.store.records import record_from_json, record_to_json

SCHEMA_VERSION = 1
_CHECKSUM_HEX = 32


@dataclass(frozen=True, slots=True)
class Contribution:
    """Where a silo's part of the asynchronous global model lies: the spool file's number, and the weight it counts with."""

    slot: int
    weight: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a committed round, and the contributions that it replaced."""

    record: RoundRecord
    contributions: Mapping[str, Contribution] = field(default_factory=dict)


def _to_line(entry: Entry) -> bytes:
    values = {"schemaVersion": SCHEMA_VERSION, **record_to_json(entry.record)}
    values["contributions"] = {silo: {"slot": c.slot, "weight": c.weight} for silo, c in entry.contributions.items()}
    return seal(values)


def seal(values: Mapping[str, Any]) -> bytes:
    """Return values as one line of JSON with a checksum."""
    body = json.dumps(values, separators=(",", ":"), allow_nan=False).encode()
    return body[:-1] + b',"checksum":"' + _checksum(body) + b'"}\n'


def body_of(line: bytes) -> bytes | None:
    """Return the JSON that a line's checksum is over; None where the line is not as `seal` made it."""
    tail = len(b',"checksum":""}\n') + _CHECKSUM_HEX
    body = line[:-tail] + b"}"
    return body if line.endswith(b'"}\n') and line[-3 - _CHECKSUM_HEX : -3] == _checksum(body) else None


def _from_body(body: bytes) -> Entry:
    """Read a line's body.

    Raises
    ------
    ValueError
        It is of another schema.
    """
    values = json.loads(body)
    if values["schemaVersion"] != SCHEMA_VERSION:
        raise ValueError(f"schema version {values['schemaVersion']}, this version reads {SCHEMA_VERSION}")
    contributions = {silo: Contribution(**c) for silo, c in values["contributions"].items()}
    return Entry(record_from_json(values), contributions)


def _checksum(body: bytes) -> bytes:
    return blake3(body).hexdigest()[:_CHECKSUM_HEX].encode()


def read_journal(path: Path) -> list[Entry]:
    """Return every entry of a journal that another process may be writing; a torn last line is left out.

    Raises
    ------
    AnchorageError
        A line before the last is damaged or the rounds do not ascend by one; the file cannot be read.
    """
    with storage_errors("read the journal", path):
        content = read_regular(path) if path.exists() else b""
    return _entries(content, path)[0]


def _entries(content: bytes, path: Path) -> tuple[list[Entry], list[int]]:
    """Return every entry, and where each begins and the last one ends, in bytes.

    Raises
    ------
    AnchorageError
        As `read_journal`.
    """
    entries: list[Entry] = []
    bounds = [0]
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        body = body_of(line)
        if body is None and number == len(lines):
            break
        try:
            if body is None:
                raise ValueError("the checksum does not fit")
            entry = _from_body(body)
        except (ValueError, KeyError, TypeError) as error:
            raise AnchorageError(JOURNAL_DAMAGED, f"{path} line {number}: {error}") from error
        if entry.record.round != len(entries):
            message = f"{path} line {number} is of round {entry.record.round}, expected {len(entries)}"
            raise AnchorageError(JOURNAL_DAMAGED, message)
        entries.append(entry)
        bounds.append(bounds[-1] + len(line))
    return entries, bounds


class Journal:
    """``journal.jsonl``: read once when it is opened, then only appended to.

    Parameters
    ----------
    path : Path
        The file; made when missing. A last line that is not as it was written, as a crash leaves it, is left out and written over.
    sync : bool
        Whether a line is on disk when `append` returns.

    Raises
    ------
    AnchorageError
        A line before the last is damaged or the rounds do not ascend by one; the file cannot be read or written.
    """

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self._path, self._sync = path, sync
        with storage_errors("open the journal", path):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            content = read_regular(path)
            self.entries, self._bounds = _entries(content, path)
        is_complete = len(content) == self._bounds[-1]
        self.damage = "" if is_complete else f"{path}: the last line is torn or not as it was written"
        """What is wrong with the last line, empty where nothing is: a crash tore it, or its bytes changed."""

    def go_back(self) -> Entry:
        """Take the last entry out and return it; its line stays in the file until the next one takes its place."""
        self._bounds.pop()
        return self.entries.pop()

    def append(self, entry: Entry) -> None:
        """Add one line.

        Raises
        ------
        AnchorageError
            The disk is full or not writable; the journal is then as before.
        """
        line = _to_line(entry)
        with storage_errors(f"write the journal line of round {entry.record.round}", self._path):
            os.ftruncate(self._handle, self._bounds[-1])
            try:
                if os.write(self._handle, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if self._sync:
                    os.fsync(self._handle)
            except OSError:
                os.ftruncate(self._handle, self._bounds[-1])
                raise
        self._bounds.append(self._bounds[-1] + len(line))
        self.entries.append(entry)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)

"""An append-only file with one JSON object per line, in which a changed, removed or inserted line is noticed.

`hash` of a line is the SHA-256 of the previous line's hash and the rest of the line. A signed head beside the file (`audit_head`) shows that its
end, or all of it, was removed, or that it was written anew. A file that has become large is set aside as a segment, ``audit.1.jsonl`` of
``audit.jsonl``, and the next one begins with a line that continues it: the number of its segment, the lines before it and the last one's hash.
"""

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

from anchorage.api.errors import AnchorageError, Failure
from anchorage.api.regular_files import open_regular, read_regular
from anchorage.transport.files import sync
from anchorage_silo.audit_head import AuditHead

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChainedFile:
    """A file of this form, closed.

    Parameters
    ----------
    path : Path
        The file; earlier segments, head and key lie beside it.
    broken, unwritable : Failure
        What is raised where it is not as it was written, and where it cannot be read or written.
    fields : mapping of str to type
        What every entry has.
    """

    path: Path
    broken: Failure
    unwritable: Failure
    fields: Mapping[str, type]

    def segment(self, number: int) -> Path:
        """Return where a segment lies once it is set aside."""
        return self.path.with_suffix(f".{number}{self.path.suffix}")

    def segments(self) -> list[Path]:
        """Return the segments that are set aside and here, the oldest first."""
        form = re.compile(rf"{re.escape(self.path.stem)}\.([1-9]\d{{0,8}}){re.escape(self.path.suffix)}")
        names = self.path.parent.iterdir() if self.path.parent.exists() else ()
        numbers = sorted(int(match[1]) for path in names if (match := form.fullmatch(path.name)))
        return [self.segment(number) for number in numbers]

    def unusable(self, error: OSError) -> AnchorageError:
        """Return the failure of a file that cannot be read or written."""
        return AnchorageError(self.unwritable, f"{self.path}: {error.strerror or error}")


class Reading:
    """One pass over the entries of a file and its segments, in which an incomplete last line is left out; another process may be writing it.

    Iterating raises AnchorageError where it cannot be read, its hash chain is broken, or it is not the one whose head was signed; the last is
    known at the end only.

    Parameters
    ----------
    file : ChainedFile
        What to read.
    """

    def __init__(self, file: ChainedFile) -> None:
        self._source = file
        self.lines, self.last = 0, ""
        """Number of lines so far, from the very first one, and the hash of the last."""
        self.segment = self.first = 1
        """Number of the segment that is read, and of the first that is here."""
        self.missing = 0
        """Lines of segments that are not here any more."""

    def __iter__(self) -> Iterator[Entry]:
        head, signed_hash = AuditHead(self._source.path, self._source.broken), ""
        try:
            signed = head.read()
            for entry in self._entries():
                if signed is not None and signed[0] == self.lines:
                    signed_hash = self.last
                yield entry
        except OSError as error:
            raise self._source.unusable(error) from error
        head.check(signed, self.lines, signed_hash)

    def _entries(self) -> Iterator[Entry]:
        path = self._source.path
        with ExitStack() as stack:
            current: BinaryIO = stack.enter_context(open_regular(path)) if path.exists() else BytesIO()
            for earlier in self._source.segments():
                with open_regular(earlier) as lines:
                    if not _same(lines, current):  # it was set aside after it was opened
                        yield from self._read(lines, earlier)
            yield from self._read(takewhile(lambda line: line.endswith(b"\n"), current), path)

    def _read(self, lines: Iterable[bytes], path: Path) -> Iterator[Entry]:
        for number, line in enumerate(lines, start=1):
            where = f"line {number} of {path}"
            if number == 1:
                self._open(line, where, path)
            body, _, tail = line.decode(errors="replace").rpartition(', "hash": "')
            last = _chain(self.last, body + "}")
            if tail != f'{last}"}}\n':
                raise self._broken(f"{where} does not match the hash of the lines before it")
            self.lines, self.last = self.lines + 1, last
            yield self._entry(line, where)

    def _open(self, line: bytes, where: str, path: Path) -> None:
        """Check that a file's first line continues the file before it; the first file that is here says itself what it continues."""
        opening = self._entry(line, where)
        number, lines = opening.get("segment", 1), opening.get("lines", 0)
        if not (isinstance(number, int) and isinstance(lines, int)) or min(number, lines + 1) < 1:
            raise self._broken(f"{where} is no first line of a segment")
        if not self.lines and lines:
            self.lines = self.missing = lines
            self.last, self.first = opening["digest"], number
        elif self.lines and (number, lines, opening["digest"]) != (self.segment + 1, self.lines, self.last):
            raise self._broken(f"{where} does not continue segment {self.segment}: segments between them are not here")
        if path not in (self._source.path, self._source.segment(number)):
            raise self._broken(f"{path} is segment {number}")
        self.segment = number

    def _entry(self, line: bytes, where: str) -> Entry:
        """Return the entry on a line; whoever has the key can write anything."""
        try:
            entry: Entry = json.loads(line)
            wrong = [name for name, kind in self._source.fields.items() if not isinstance(entry[name], kind)]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._broken(f"{where} is no entry") from error
        if wrong:
            raise self._broken(f"{where}: {wrong[0]} is of another kind")
        return entry

    def _broken(self, detail: str) -> AnchorageError:
        return AnchorageError(self._source.broken, detail)


class ChainedLog:
    """Such a file, open for appending by one process; made with mode 0600 if it is missing. An incomplete last line, left by a crash, is removed.

    Parameters
    ----------
    file : ChainedFile
        The file.
    each : callable
        Is told every entry that is there.

    Raises
    ------
    AnchorageError
        The file is not as it was written, or cannot be written.
    """

    def __init__(self, file: ChainedFile, each: Callable[[Entry], None]) -> None:
        self._source = file
        self._file = -1
        try:
            self._open()
            text = read_regular(file.path)
            if (complete_bytes := text.rfind(b"\n") + 1) < len(text):
                os.ftruncate(self._file, complete_bytes)
            self._read = Reading(file)
            for entry in self._read:
                each(entry)
        except OSError as error:
            self.close()
            raise file.unusable(error) from error
        except AnchorageError:
            self.close()
            raise
        self._head = AuditHead(file.path, file.broken)

    @property
    def head(self) -> tuple[int, str]:
        """Number of lines, and the hash of the last."""
        return self._read.lines, self._read.last

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append an entry; when this returns, a power failure does not take it away.

        Raises
        ------
        AnchorageError
            It cannot be written: nothing that it stands for may happen.
        """
        text = json.dumps(entry)
        chained = _chain(self._read.last, text)
        try:
            self._write(f'{text[:-1]}, "hash": "{chained}"}}\n'.encode())
            self._read.lines, self._read.last = self._read.lines + 1, chained
            self._read.segment = entry.get("segment", self._read.segment)
            self._head.sign(self._read.lines, chained)
        except OSError as error:
            raise self._source.unusable(error) from error

    def continue_in(self, opening: Callable[[], Mapping[str, Any]], nbytes: int) -> None:
        """Where the file has so many bytes, set it aside, and begin the next segment with an entry of `opening` and what continues the chain.

        Raises
        ------
        AnchorageError
            A file cannot be written; the next call tries again.
        """
        lines, last = self.head
        try:
            size = os.fstat(self._file).st_size
            if size >= nbytes:
                self._source.path.rename(self._source.segment(self._read.segment))
                self.close()
                self._open()
        except OSError as error:
            raise self._source.unusable(error) from error
        if size >= nbytes or (lines and not size):  # the latter where a process ended between the two
            self.append({**opening(), "digest": last, "segment": self._read.segment + 1, "lines": lines})

    def close(self) -> None:
        """Close the file; later calls of `append` fail."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _open(self) -> None:
        self._file = os.open(self._source.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        sync(self._source.path.parent)  # else a power failure takes the name away, whatever lines it has

    def _write(self, line: bytes) -> None:
        """Append a complete line, or nothing."""
        size = os.fstat(self._file).st_size
        if os.write(self._file, line) < len(line):
            os.ftruncate(self._file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._file)


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return not isinstance(other, BytesIO) and os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))


def _chain(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()

"""An append-only file with one JSON object per line, in which a changed, removed or inserted line is noticed.

`hash` of a line is the SHA-256 of the previous line's hash and the rest of the line. A signed head beside the file (`audit_head`) shows that its
end, or all of it, was removed, or that it was written anew.
"""

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorage.api.errors import AnchorageError, Failure
from anchorage_silo.audit_head import AuditHead

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChainedFile:
    """A file of this form, closed.

    Parameters
    ----------
    path : Path
        The file; head and key lie beside it.
    broken, unwritable : Failure
        What is raised where it is not as it was written, and where it cannot be read or written.
    fields : mapping of str to type
        What every entry has.
    """

    path: Path
    broken: Failure
    unwritable: Failure
    fields: Mapping[str, type]

    def read(self) -> list[Entry]:
        """Return its entries, in which an incomplete last line is left out; another process may be writing it.

        Raises
        ------
        AnchorageError
            It cannot be read, its hash chain is broken, or it is not the one whose head was signed.
        """
        entries: list[Entry] = []
        try:
            head = AuditHead(self.path, self.broken)
            text = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise self.unusable(error) from error
        last = ""
        for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), start=1):
            body, _, tail = line.decode(errors="replace").rpartition(', "hash": "')
            last = _chain(last, body + "}")
            if tail != f'{last}"}}':
                found = f"line {number} of {self.path} does not match the hash of the lines before it"
                raise AnchorageError(self.broken, found)
            entries.append(self._entry(line, number))
        head.check([entry["hash"] for entry in entries])
        return entries

    def _entry(self, line: bytes, number: int) -> Entry:
        """Return the entry on a line whose hash is right; whoever has the key can write anything."""
        try:
            entry: Entry = json.loads(line)
            wrong = [name for name, kind in self.fields.items() if not isinstance(entry[name], kind)]
        except (ValueError, KeyError, RecursionError) as error:
            raise AnchorageError(self.broken, f"line {number} of {self.path} is no entry") from error
        if wrong:
            raise AnchorageError(self.broken, f"line {number} of {self.path}: {wrong[0]} is of another kind")
        return entry

    def unusable(self, error: OSError) -> AnchorageError:
        """Return the failure of a file that cannot be read or written."""
        return AnchorageError(self.unwritable, f"{self.path}: {error.strerror or error}")


class ChainedLog:
    """Such a file, open for appending by one process; made with mode 0600 if it is missing. An incomplete last line, left by a crash, is removed.

    Raises
    ------
    AnchorageError
        The file is not as it was written, or cannot be written.
    """

    def __init__(self, file: ChainedFile) -> None:
        self._source = file
        try:
            self._file = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise file.unusable(error) from error
        try:
            text = file.path.read_bytes()
            if (whole := text.rfind(b"\n") + 1) < len(text):
                os.ftruncate(self._file, whole)
            self.entries = tuple(file.read())
        except OSError as error:
            self.close()
            raise file.unusable(error) from error
        except AnchorageError:
            self.close()
            raise
        self._lines, self._hash = len(self.entries), self.entries[-1]["hash"] if self.entries else ""
        self._head = AuditHead(file.path, file.broken)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append an entry; when this returns, a power failure does not take it away.

        Raises
        ------
        AnchorageError
            It cannot be written: nothing that it stands for may happen.
        """
        text = json.dumps(entry)
        chained = _chain(self._hash, text)
        try:
            self._write(f'{text[:-1]}, "hash": "{chained}"}}\n'.encode())
            self._lines, self._hash = self._lines + 1, chained
            self._head.sign(self._lines, chained)
        except OSError as error:
            raise self._source.unusable(error) from error

    def close(self) -> None:
        """Close the file; later calls of `append` fail."""
        os.close(self._file)
        self._file = -1

    def _write(self, line: bytes) -> None:
        """Append a complete line, or nothing."""
        size = os.fstat(self._file).st_size
        if os.write(self._file, line) < len(line):
            os.ftruncate(self._file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._file)


def _chain(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()

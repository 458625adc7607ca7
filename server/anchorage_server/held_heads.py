"""The newest head of each silo's audit log, in a file per silo: a hospital whose log was put back to an older copy is told."""

import logging
from pathlib import Path
from threading import Lock

from pydantic import Field, ValidationError

from anchorage.api.base import Document
from anchorage.api.regular_files import read_regular
from anchorage.transport.files import sync, write_atomically
from anchorage.transport.signed_head import MOST_LINES, SignedHead

_log = logging.getLogger(__name__)


class HeldHead(Document):
    """A head, as the file has it."""

    lines: int = Field(ge=1, le=MOST_LINES, description="Number of lines.")
    digest: str = Field(max_length=64, pattern="^[0-9a-f]+$", description="SHA-256 of the last, hex.")
    signature: str = Field(max_length=144, pattern="^[0-9a-f]+$", description="The silo's, hex.")
    key: str = Field(max_length=64, description="Fingerprint of the key that signed it.")

    @property
    def head(self) -> SignedHead | None:
        """The head; None where the file was damaged."""
        try:
            head = SignedHead(self.lines, bytes.fromhex(self.digest), bytes.fromhex(self.signature))
        except ValueError:
            return None
        return head if head.bounded else None


class HeldHeads:
    """Keeps one head per silo (`anchorage.transport.link.AuditHeads`): of one key's heads that with the most lines, of two keys' the later one.

    Parameters
    ----------
    folder : Path
        Where the files lie; made when the first comes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, HeldHead | None] = {}
        self._locks: dict[str, Lock] = {}

    def newest(self, silo: str) -> SignedHead | None:
        """Return the head that is kept of a silo; None without one."""
        with self._lock(silo):
            held = self._of(silo)
            return None if held is None else held.head

    def keep(self, silo: str, key: str, head: SignedHead) -> None:
        """Keep a head durably where it is newer. A disk that fails is named in the log, and the call goes on: it has served training."""
        new = HeldHead(lines=head.lines, digest=head.digest.hex(), signature=head.signature.hex(), key=key)
        with self._lock(silo):
            held = self._of(silo)
            if held is not None and held.key == key and new.lines <= held.lines:
                if new.lines == held.lines and new.digest != held.digest:
                    _log.warning("a silo has two audit logs", extra={"silo": silo, "lines": new.lines})
                return
            if held is not None and held.key != key:
                _log.warning("a silo's audit log has a new key", extra={"silo": silo, "lines": held.lines})
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                content = new.model_dump_json(by_alias=True).encode()
                write_atomically(self._file(silo), content, mode=0o600, durable=True)
                sync(self._folder)
            except OSError as error:
                _log.warning("the head of an audit log is not kept", extra={"silo": silo, "error": str(error)})
                return
            self._held[silo] = new

    def _of(self, silo: str) -> HeldHead | None:
        if silo not in self._held:
            self._held[silo] = self._read(self._file(silo))
        return self._held[silo]

    def _read(self, file: Path) -> HeldHead | None:
        try:
            return HeldHead.model_validate_json(read_regular(file)) if file.exists() else None
        except (OSError, ValidationError) as error:
            _log.warning(
                "the head of an audit log is not as it was written", extra={"file": str(file), "error": str(error)}
            )
            return None

    def _file(self, silo: str) -> Path:
        return self._folder / f"{silo}.json"

    def _lock(self, silo: str) -> Lock:
        return self._locks.setdefault(silo, Lock())

"""The audit log and its newest head, which the server keeps: a log that was put back to an older copy, or removed, shows."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anchorage.api.errors import AnchorageError, silo
from anchorage.transport.pki.keys import PrivateKey
from anchorage.transport.signed_head import SignedHead
from anchorage_silo.audit import ROLLBACK, AuditLog, verify

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AuditWitness:
    """Signs the heads of an audit log for the server, and compares the log with the one that it keeps.

    Parameters
    ----------
    audit : AuditLog
        The log.
    key : callable
        Returns the key of the silo's certificate, which may be changed at any time.
    uri : str
        The silo's name in it.
    """

    audit: AuditLog
    key: Callable[[], PrivateKey]
    uri: str

    def head(self) -> SignedHead:
        """Return the head of the log as it is now, signed."""
        lines, last = self.audit.head
        return SignedHead.sign(self.key(), self.uri, lines, bytes.fromhex(last))

    def compare(self, held: SignedHead | None) -> None:
        """Compare the log with the head that the server keeps; what is missing is a warning and, once for each head, an entry of the log.

        Raises
        ------
        AnchorageError
            The log cannot be read or written.
        """
        detail = missing_lines(self.audit.path, held)
        if held is None or not detail:
            return
        if not held.is_by(self.key().public_key(), self.uri):
            detail += "; this agent's key did not sign that head: the silo enrolled with another one before, or the server made it up"
        _log.warning("%s", AnchorageError(silo.AUDIT_ROLLED_BACK, detail))
        digest = held.digest.hex()
        if not any(digest == known for _, known in self.audit.read_sent(ROLLBACK, all_runs=True)):
            self.audit.record(ROLLBACK, digest=digest, code=silo.AUDIT_ROLLED_BACK.code)


def missing_lines(log: Path, held: SignedHead | None) -> str:
    """Return in words what a log lacks of a head; empty where it has that line, or where the line is in a segment that is not here.

    Raises
    ------
    AnchorageError
        The log is not as it was written, or cannot be read.
    """
    if held is None:
        return ""
    reading, line_hash = verify(log), ""
    for entry in reading:
        if reading.lines == held.lines:
            line_hash = entry["hash"]
    if held.lines <= reading.missing or line_hash == held.digest.hex():
        return ""
    if held.lines > reading.lines:
        return f"{log} has {reading.lines} lines, and the server keeps the head of {held.lines}"
    return f"line {held.lines} of {log} is another one than that whose head the server keeps"

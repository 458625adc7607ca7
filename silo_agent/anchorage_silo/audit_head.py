"""The signed head of a chained log: how many lines it has, and the hash of the last one. A log that lost lines, or has others, is noticed."""

import json
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from anchorage.api.errors import AnchorageError, Failure
from anchorage.api.regular_files import read_regular
from anchorage.transport.files import write_atomically
from anchorage.transport.pki import load_key, new_key


class AuditHead:
    """The head of a log, in a file beside it, with the key that signs it in another.

    Parameters
    ----------
    log : Path
        The log, such as ``audit.jsonl``.
    broken : Failure
        What is raised where the log is not the signed one.
    """

    def __init__(self, log: Path, broken: Failure) -> None:
        self._log, self._broken = log, broken
        self._file, self._key_file = log.with_suffix(".head"), log.with_suffix(".key")

    def read(self) -> tuple[int, str] | None:
        """Return the signed number of lines, at least 1, and the hash of the last of them; None without a head. Read it before the log.

        Raises
        ------
        OSError
            The head cannot be read.
        AnchorageError
            Head or key are damaged, or not of each other.
        """
        if not self._file.exists():
            return None
        try:
            head = json.loads(read_regular(self._file))
            lines, last, signature = int(head["lines"]), str(head["hash"]), bytes.fromhex(head["signature"])
            signer = load_key(self._key_file).public_key()
            signer.verify(signature, _signed_text(lines, last), ec.ECDSA(hashes.SHA256()))
            if lines < 1:
                raise ValueError("it has no lines")
        except (
            ValueError,
            KeyError,
            TypeError,
            ArithmeticError,
            RecursionError,
            InvalidSignature,
            AnchorageError,
        ) as error:
            detail = f"{self._file} is damaged, or not signed by {self._key_file.name}: {type(error).__name__}"
            raise AnchorageError(self._broken, detail) from error
        return lines, last

    def check(self, signed: tuple[int, str] | None, lines: int, signed_hash: str) -> None:
        """Check a log with so many lines against what `read` returned; `signed_hash` is the hash of the line that was the last one then.

        Raises
        ------
        AnchorageError
            The log has fewer lines than were signed or other ones, or the head is missing.
        """
        if signed is None:
            if lines:  # without a line nothing was ever written; a key alone is left by a process that ended before its first one
                raise AnchorageError(self._broken, f"{self._file} is missing")
            return
        if signed[0] > lines:
            detail = f"{self._log} has {lines} lines, and had {signed[0]}"
            raise AnchorageError(self._broken, f"{detail}: lines at its end, or all of it, were removed")
        if signed[1] != signed_hash:
            raise AnchorageError(self._broken, f"{self._log} was written anew: line {signed[0]} is not the signed one")

    def sign(self, lines: int, last: str) -> None:
        """Sign the number of lines and the hash of the last.

        Raises
        ------
        OSError
            A file cannot be written.
        AnchorageError
            The key cannot be read.
        """
        key = load_key(self._key_file) if self._key_file.exists() else new_key(self._key_file)
        signature = key.sign(_signed_text(lines, last), ec.ECDSA(hashes.SHA256()))
        text = json.dumps({"lines": lines, "hash": last, "signature": signature.hex()})
        write_atomically(self._file, text.encode(), mode=0o600, durable=True)


def _signed_text(lines: int, last: str) -> bytes:
    return f"anchorage audit log: {lines} lines, {last}".encode()

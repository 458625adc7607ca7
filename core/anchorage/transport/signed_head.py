"""The head of a hospital's audit log, signed for the server, which keeps the newest: a log that was put back to an older copy is noticed."""

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from anchorage.transport.pki.keys import PrivateKey, PublicKey

DIGEST_BYTES = 32
MOST_LINES = 2**53
MOST_SIGNATURE_BYTES = 72
"""An ECDSA signature over P-256, DER."""


@dataclass(frozen=True, slots=True)
class SignedHead:
    """How many lines a silo's audit log has, and the hash of the last, signed with the key of the silo's certificate."""

    lines: int
    """Number of lines, from 1."""
    digest: bytes
    """SHA-256, 32 bytes."""
    signature: bytes
    """ECDSA over P-256 with SHA-256, DER."""

    @classmethod
    def sign(cls, key: PrivateKey, uri: str, lines: int, digest: bytes) -> "SignedHead":
        """Sign the head of the silo that certificates call `uri`."""
        return cls(lines, digest, key.sign(_content(uri, lines, digest), ec.ECDSA(hashes.SHA256())))

    @property
    def bounded(self) -> bool:
        """Whether lengths and number are such as a head can have."""
        lengths = len(self.digest) == DIGEST_BYTES and len(self.signature) <= MOST_SIGNATURE_BYTES
        return lengths and 1 <= self.lines <= MOST_LINES

    def is_by(self, key: PublicKey, uri: str) -> bool:
        """Return whether the owner of `key` signed it for the silo `uri`."""
        try:
            key.verify(self.signature, _content(uri, self.lines, self.digest), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


def _content(uri: str, lines: int, digest: bytes) -> bytes:
    return f"anchorage audit head of {uri}: {lines} lines, {digest.hex()}".encode()

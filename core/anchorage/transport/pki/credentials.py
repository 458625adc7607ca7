"""TLS credentials of one end of a connection."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.files import write_atomically
from anchorage.transport.pki.identity import UNREADABLE, uris_of
from anchorage.transport.pki.keys import load_key


@dataclass(frozen=True, slots=True)
class Credentials:
    """The TLS files of the server or of a silo."""

    key: Path
    """The private key, PEM; never leaves its machine."""
    certificate: Path
    """The certificate over the key, PEM."""
    authority: Path
    """The certificate of the federation's authority, PEM."""

    def save_certificate(self, pem: bytes) -> None:
        """Write the certificate whole or not at all.

        Raises
        ------
        OSError
            The folder is missing, full or not writable.
        """
        write_atomically(self.certificate, pem, mode=0o644, durable=True)

    def expires(self) -> float:
        """Return when the certificate stops being valid, seconds since the epoch.

        Raises
        ------
        AnchorageError
            The certificate cannot be read.
        """
        return read_certificate(self.certificate).not_valid_after_utc.timestamp()

    def check(self, uri: str, now: Callable[[], float]) -> None:
        """Check that the files belong together, name `uri`, and are valid now.

        Raises
        ------
        AnchorageError
            A file cannot be read, the certificate is over another key, by another authority or for another name, or
            it is not valid now.
        """
        key, certificate, authority = (
            load_key(self.key),
            read_certificate(self.certificate),
            read_certificate(self.authority),
        )
        wrong = None
        try:
            certificate.verify_directly_issued_by(authority)
        except (InvalidSignature, ValueError, TypeError):
            wrong = f"was not issued by the authority in {self.authority}"
        if certificate.public_key() != key.public_key():
            wrong = f"is not over the key in {self.key}"
        elif uris_of(certificate) != [uri]:
            wrong = f"is for {' '.join(uris_of(certificate)) or 'nobody'}, expected {uri}"
        if wrong:
            raise AnchorageError(identity.CREDENTIALS_UNUSABLE, f"the certificate {self.certificate} {wrong}")
        for path, valid in ((self.certificate, certificate), (self.authority, authority)):
            if not valid.not_valid_before_utc.timestamp() <= now() <= valid.not_valid_after_utc.timestamp():
                span = f"{valid.not_valid_before_utc:%Y-%m-%d %H:%M} to {valid.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
                raise AnchorageError(
                    identity.CERTIFICATE_EXPIRED, f"the certificate {path} is valid from {span}, not now"
                )


def read_certificate(path: Path) -> x509.Certificate:
    """Read a PEM certificate.

    Raises
    ------
    AnchorageError
        The file cannot be read or holds no certificate.
    """
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise AnchorageError(
            identity.CREDENTIALS_UNUSABLE, f"{path} cannot be read as a certificate: {type(error).__name__}"
        ) from error
    return certificate_of(pem, str(path))


def certificate_of(pem: bytes, what: str) -> x509.Certificate:
    """Read a certificate, PEM; `what` names it in the failure.

    Raises
    ------
    AnchorageError
        It is none.
    """
    try:
        found = x509.load_pem_x509_certificate(pem)
        _ = found.public_key(), uris_of(found), found.not_valid_before_utc, found.not_valid_after_utc
        return found  # whose parts are read, and found damaged, only when they are asked for
    except UNREADABLE as error:
        raise AnchorageError(
            identity.CREDENTIALS_UNUSABLE, f"{what} cannot be read as a certificate: {type(error).__name__}"
        ) from error

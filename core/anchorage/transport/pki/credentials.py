"""TLS credentials of one end of a connection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from anchorage.api.errors import AnchorageError, identity
from anchorage.api.regular_files import read_regular
from anchorage.transport.files import sync, write_atomically
from anchorage.transport.pki.identity import UNREADABLE, uris_of
from anchorage.transport.pki.keys import PrivateKey, load_key

ENDORSEMENTS = "endorsements.pem"
"""File beside the authorities' certificates with the key of a new one, certified by the one before."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The TLS files of the server or of a silo."""

    key: Path
    """The private key, PEM; never leaves its machine."""
    certificate: Path
    """The certificate over the key, PEM; while the key is changed (`change_key`), those over the new and the old one."""
    authority: Path
    """The certificate of the federation's authority, PEM; of several while one takes another's place, the one that signs first."""

    def save_certificate(self, pem: bytes) -> None:
        """Write the certificate whole or not at all.

        Raises
        ------
        OSError
            The folder is missing, full or not writable.
        """
        write_atomically(self.certificate, pem, mode=0o644, durable=True)

    def change_key(self, other: "Credentials") -> None:
        """Put the key of `other` and the certificate over it in place of these; whoever reads meanwhile, or after a crash, finds two that fit.

        Raises
        ------
        OSError
            As `save_certificate`.
        AnchorageError
            A file cannot be read.
        """
        certificates = (other.read()[1], self.read()[1])
        self.save_certificate(b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates))
        other.key.replace(self.key)
        sync(self.key.parent)

    def read(self) -> tuple[PrivateKey, x509.Certificate, list[x509.Certificate]]:
        """Return the key, the certificate over it, or another one where there is none over it, and those of the authorities.

        Raises
        ------
        AnchorageError
            A file cannot be read.
        """
        key = load_key(self.key)  # first, see `change_key`
        held = read_certificates(self.certificate)
        over_it = (each for each in held if each.public_key() == key.public_key())
        return key, next(over_it, held[0]), read_certificates(self.authority)

    def read_trusted(self) -> tuple[bytes, bytes]:
        """Return the authorities' certificates and their endorsements (``endorsements.pem`` beside them; empty without), PEM.

        Raises
        ------
        AnchorageError
            A file cannot be read.
        """
        endorsements = self.authority.with_name(ENDORSEMENTS)
        try:
            return read_regular(self.authority), read_regular(endorsements) if endorsements.exists() else b""
        except OSError as error:
            detail = f"{error.filename} cannot be read: {error.strerror}"
            raise AnchorageError(identity.CREDENTIALS_UNUSABLE, detail) from error

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
        key, certificate, authorities = self.read()
        wrong = None
        authority = issuer_of(certificate, authorities)
        if authority is None:
            wrong = f"was not issued by the authority in {self.authority}"
        if certificate.public_key() != key.public_key():
            wrong = f"is not over the key in {self.key}"
        elif uris_of(certificate) != [uri]:
            wrong = f"is for {' '.join(uris_of(certificate)) or 'nobody'}, expected {uri}"
        if wrong or authority is None:
            raise AnchorageError(identity.CREDENTIALS_UNUSABLE, f"the certificate {self.certificate} {wrong}")
        for path, valid in ((self.certificate, certificate), (self.authority, authority)):
            if not valid.not_valid_before_utc.timestamp() <= now() <= valid.not_valid_after_utc.timestamp():
                span = f"{valid.not_valid_before_utc:%Y-%m-%d %H:%M} to {valid.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
                shown = f"{datetime.fromtimestamp(now(), UTC):%Y-%m-%d %H:%M} UTC"
                raise AnchorageError(
                    identity.CERTIFICATE_EXPIRED,
                    f"the certificate {path} is valid from {span}, this machine's clock says {shown}",
                )


def issuer_of(certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> x509.Certificate | None:
    """Return the authority that issued a certificate, None where none of these did."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
            return authority
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
            continue
    return None


def read_certificate(path: Path) -> x509.Certificate:
    """Read a PEM certificate, the first where there are several. Raises as `read_certificates`."""
    return read_certificates(path)[0]


def read_certificates(path: Path) -> list[x509.Certificate]:
    """Read PEM certificates, one or more.

    Raises
    ------
    AnchorageError
        The file cannot be read or holds no certificate.
    """
    try:
        pem = read_regular(path)
    except OSError as error:
        raise AnchorageError(
            identity.CREDENTIALS_UNUSABLE, f"{path} cannot be read as a certificate: {error.strerror}"
        ) from error
    return certificates_of(pem, str(path))


def certificate_of(pem: bytes, what: str) -> x509.Certificate:
    """Read a certificate, PEM, the first where there are several. As `certificates_of`."""
    return certificates_of(pem, what)[0]


def certificates_of(pem: bytes, what: str) -> list[x509.Certificate]:
    """Read certificates, PEM, one or more; `what` names them in the failure.

    Raises
    ------
    AnchorageError
        One of them is none.
    """
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        for each in certificates:  # whose parts are read, and found damaged, only when they are asked for
            _ = each.public_key(), uris_of(each), each.not_valid_before_utc, each.not_valid_after_utc
        return certificates
    except UNREADABLE as error:
        raise AnchorageError(
            identity.CREDENTIALS_UNUSABLE, f"{what} cannot be read as a certificate: {type(error).__name__}"
        ) from error

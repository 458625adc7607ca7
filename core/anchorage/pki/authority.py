"""A federation's certificate authority: one key, one self-signed certificate, in a folder only its owner may read."""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from anchorage.errors import AnchorageError, identity
from anchorage.pki.credentials import read_certificate
from anchorage.pki.files import write_whole
from anchorage.pki.identity import authority_uri, server_uri, silo_uri, uris_of
from anchorage.pki.keys import PrivateKey, PublicKey, SigningRequest, load_key, new_key

BACKDATED = timedelta(minutes=5)
"""How long before its issue a certificate is valid, for clocks that go slow."""
AUTHORITY_VALID = timedelta(days=3650)
CERTIFICATE_VALID = timedelta(days=365)


class Authority:
    """Signs the certificates of one federation.

    Parameters
    ----------
    folder : Path
        Holds ``ca.key`` (mode 0600) and ``ca.pem``.
    federation : str
        The federation's name.
    key : PrivateKey
        The authority's key.
    certificate : x509.Certificate
        The authority's certificate.
    now : callable
        Seconds since the epoch.
    """

    def __init__(
        self, folder: Path, federation: str, key: PrivateKey, certificate: x509.Certificate, now: Callable[[], float]
    ) -> None:
        self.folder = folder
        self.federation = federation
        self._key = key
        self._certificate = certificate
        self._now = now

    @property
    def certificate_path(self) -> Path:
        """The authority's certificate, PEM; may be given to anybody."""
        return self.folder / "ca.pem"

    @classmethod
    def create(
        cls, folder: Path, federation: str, *, valid: timedelta = AUTHORITY_VALID, now: Callable[[], float] = time.time
    ) -> "Authority":
        """Make a federation's authority in a new folder (mode 0700).

        Raises
        ------
        AnchorageError
            The folder holds an authority already, or cannot be written.
        """
        certificate_path = folder / "ca.pem"
        if certificate_path.exists():
            raise AnchorageError(
                identity.AUTHORITY_UNUSABLE, f"{folder} holds an authority already; use it or choose another folder"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            key = new_key(folder / "ca.key")
            certificate = _self_signed(key, federation, _moment(now), valid)
            write_whole(certificate_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        except OSError as error:
            raise AnchorageError(
                identity.AUTHORITY_UNUSABLE, f"{folder} cannot be written: {error.strerror}"
            ) from error
        return cls(folder, federation, key, certificate, now)

    @classmethod
    def load(cls, folder: Path, *, now: Callable[[], float] = time.time) -> "Authority":
        """Open the authority that `create` made.

        Raises
        ------
        AnchorageError
            The folder holds no authority, or its key and certificate do not belong together.
        """
        try:
            key, certificate = load_key(folder / "ca.key"), read_certificate(folder / "ca.pem")
        except AnchorageError as error:
            raise AnchorageError(
                identity.AUTHORITY_UNUSABLE, f"{folder} holds no usable authority: {error.message}"
            ) from error
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        federation = str(names[0].value) if names else ""
        if certificate.public_key() != key.public_key() or uris_of(certificate) != [authority_uri(federation)]:
            raise AnchorageError(
                identity.AUTHORITY_UNUSABLE, f"ca.pem and ca.key in {folder} are not one federation's authority"
            )
        return cls(folder, federation, key, certificate, now)

    def issue_server(self, csr_pem: bytes, names: Sequence[str], *, valid: timedelta = CERTIFICATE_VALID) -> bytes:
        """Sign the server's certificate.

        Parameters
        ----------
        csr_pem : bytes
            The server's signing request.
        names : sequence of str
            DNS names and IP addresses under which silos reach the server.
        valid : timedelta
            How long the certificate is valid, at most as long as the authority's.

        Returns
        -------
        bytes
            The certificate, PEM.

        Raises
        ------
        AnchorageError
            The request does not fit.
        """
        key = self._requested_key(csr_pem, server_uri(self.federation))
        return self._issue(key, server_uri(self.federation), names, ExtendedKeyUsageOID.SERVER_AUTH, valid)

    def issue_silo(self, csr_pem: bytes, silo: str, *, valid: timedelta = CERTIFICATE_VALID) -> bytes:
        """Sign the certificate (PEM) of the silo of this name, valid at most as long as the authority's own.

        Raises
        ------
        AnchorageError
            The request does not fit.
        """
        uri = silo_uri(self.federation, silo)
        return self._issue(self._requested_key(csr_pem, uri), uri, (), ExtendedKeyUsageOID.CLIENT_AUTH, valid)

    def _requested_key(self, csr_pem: bytes, uri: str) -> PublicKey:
        request = SigningRequest.parse(csr_pem)
        if request.uri != uri:
            raise AnchorageError(
                identity.REQUEST_REFUSED, f"the request asks for the name {request.uri!r}, expected {uri!r}"
            )
        return request.public_key

    def _issue(
        self, key: PublicKey, uri: str, names: Iterable[str], usage: x509.ObjectIdentifier, valid: timedelta
    ) -> bytes:
        now = _moment(self._now)
        if now > self._certificate.not_valid_after_utc:
            raise AnchorageError(
                identity.CERTIFICATE_EXPIRED, f"the authority in {self.folder} is no longer valid and cannot sign"
            )
        alternative = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri), *map(_general_name, names)])
        certificate = (
            _unsigned(key, x509.Name([]), self._certificate.subject, now)
            .not_valid_after(min(now + valid, self._certificate.not_valid_after_utc))
            .add_extension(alternative, critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)


def _self_signed(key: PrivateKey, federation: str, now: datetime, valid: timedelta) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, federation)])
    alternative = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(authority_uri(federation))])
    return (
        _unsigned(key.public_key(), name, name, now)
        .not_valid_after(now + valid)
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _unsigned(key: PublicKey, subject: x509.Name, issuer: x509.Name, now: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _moment(now: Callable[[], float]) -> datetime:
    return datetime.fromtimestamp(now(), UTC)

"""A federation's certificate authority: one key and one certificate, in memory or in a folder only its owner may read."""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.files import set_mode, write_atomically
from anchorage.transport.pki.credentials import certificates_of, read_certificates
from anchorage.transport.pki.identity import authority_uri, operator_uri, server_uri, silo_uri, uris_of
from anchorage.transport.pki.keys import (
    PrivateKey,
    PublicKey,
    SigningRequest,
    key_from_pem,
    key_to_pem,
    load_key,
    make_key,
)

BACKDATED = timedelta(minutes=5)
"""How long before its issue a certificate is valid, for clocks that go slow."""
AUTHORITY_VALID = timedelta(days=3650)
CERTIFICATE_VALID = timedelta(days=365)
PREVIOUS_KEY = "previous.key"
"""File of the folder with the key of the authority that another one takes the place of (`anchorage.transport.pki.succession`)."""


class Authority:
    """Signs the certificates of one federation.

    Parameters
    ----------
    federation : str
        The federation's name.
    key : PrivateKey
        The authority's key.
    certificate : x509.Certificate
        The authority's certificate.
    now : callable
        Seconds since the epoch.
    folder : Path or None
        Holds ``ca.key`` (mode 0600) and ``ca.pem``; None for an authority that only lies in memory.
    """

    def __init__(
        self,
        federation: str,
        key: PrivateKey,
        certificate: x509.Certificate,
        now: Callable[[], float] = time.time,
        folder: Path | None = None,
    ) -> None:
        self.federation = federation
        self._key = key
        self._certificate = certificate
        self._now = now
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Where the authority lies.

        Raises
        ------
        ValueError
            It lies in memory.
        """
        if self._folder is None:
            raise ValueError(f"the authority of {self.federation} lies in no folder")
        return self._folder

    @property
    def certificate_path(self) -> Path:
        """The authority's certificate, PEM; public. Raises as `folder`."""
        return self.folder / "ca.pem"

    @property
    def certificate_pem(self) -> bytes:
        """The authority's certificate, PEM; public."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The authority's key, PKCS 8, not encrypted: whoever has it can sign in the federation's name."""
        return key_to_pem(self._key)

    @property
    def expires(self) -> float:
        """When the authority stops being valid, seconds since the epoch."""
        return self._certificate.not_valid_after_utc.timestamp()

    @classmethod
    def make(
        cls, federation: str, *, valid: timedelta = AUTHORITY_VALID, now: Callable[[], float] = time.time
    ) -> "Authority":
        """Make a federation's authority in memory."""
        key = make_key()
        return cls(federation, key, _self_signed(key, federation, _moment(now), valid), now)

    @staticmethod
    def signing_request(federation: str, key_pem: bytes) -> bytes:
        """Return the request (PEM) that another authority certify this key as the federation's authority.

        Raises
        ------
        AnchorageError
            It is no key.
        """
        key = key_from_pem(key_pem, f"the key of the authority of federation {federation!r}")
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(authority_uri(federation))])
        request = x509.CertificateSigningRequestBuilder().subject_name(_name(federation))
        signed = request.add_extension(names, critical=False).sign(key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

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
        if (folder / "ca.pem").exists():
            raise AnchorageError(
                identity.AUTHORITY_UNUSABLE, f"{folder} holds an authority already; use it or choose another folder"
            )
        made = cls.make(federation, valid=valid, now=now)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            set_mode(folder, 0o700)
            write_atomically(folder / "ca.key", made.key_pem, mode=0o600, durable=True)
            write_atomically(folder / "ca.pem", made.certificate_pem, mode=0o644, durable=True)
        except OSError as error:
            raise AnchorageError(
                identity.AUTHORITY_UNUSABLE, f"{folder} cannot be written: {error.strerror}"
            ) from error
        return cls(federation, made._key, made._certificate, now, folder)

    @classmethod
    def load(cls, folder: Path, *, now: Callable[[], float] = time.time, key: str = "ca.key") -> "Authority":
        """Open the authority that `create` made; of several in the folder, the one that the file `key` is of.

        Raises
        ------
        AnchorageError
            The folder holds no authority, or its key and certificate do not belong together.
        """
        try:
            private_key, held = load_key(folder / key), read_certificates(folder / "ca.pem")
        except AnchorageError as error:
            raise AnchorageError(
                identity.AUTHORITY_UNUSABLE, f"{folder} holds no usable authority: {error.message}"
            ) from error
        certificate = next((each for each in held if each.public_key() == private_key.public_key()), held[0])
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        federation = str(names[0].value) if names else ""
        _require_one_authority(private_key, certificate, federation, f"ca.pem and {key} in {folder}")
        return cls(federation, private_key, certificate, now, folder)

    def current(self) -> "Authority":
        """Return this authority, or the one that has taken its place in its folder. Raises as `load` and `folder`."""
        return Authority.load(self.folder, now=self._now)

    def former(self) -> "Authority":
        """Return the authority that every silo trusts: while one takes another's place in the folder, the other one. Raises as `current`."""
        if (self.folder / PREVIOUS_KEY).exists():
            previous, held = load_key(self.folder / PREVIOUS_KEY), read_certificates(self.folder / "ca.pem")
            if any(each.public_key() == previous.public_key() for each in held):
                return Authority.load(self.folder, now=self._now, key=PREVIOUS_KEY)
        return self.current()

    def endorse(self, other: "Authority") -> bytes:
        """Certify the key (PEM) of the authority that is to take this one's place."""
        subject, now = self._certificate.subject, _moment(self._now)
        certificate = _authority_certificate(other._key.public_key(), self.federation, subject, now)
        return (
            certificate.not_valid_after(self._certificate.not_valid_after_utc)
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )

    @classmethod
    def from_pem(
        cls, federation: str, key_pem: bytes, certificate_pem: bytes, *, now: Callable[[], float] = time.time
    ) -> "Authority":
        """Load an authority from bytes, for example from a Kubernetes Secret.

        Parameters
        ----------
        federation : str
            Whose authority it must be.
        key_pem, certificate_pem : bytes
            What `key_pem` and `certificate_pem` returned; of several certificates, the one over the key counts.

        Raises
        ------
        AnchorageError
            The bytes are no key and certificate, do not belong together, or are another federation's.
        """
        what = f"the authority of federation {federation!r}"
        try:
            key, held = key_from_pem(key_pem, f"the key of {what}"), certificates_of(certificate_pem, what)
        except AnchorageError as error:
            raise AnchorageError(identity.AUTHORITY_UNUSABLE, error.message) from error
        certificate = next((each for each in held if each.public_key() == key.public_key()), held[0])
        _require_one_authority(key, certificate, federation, f"key and certificate of {what}")
        return cls(federation, key, certificate, now)

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

    def issue_operator(self, csr_pem: bytes, *, valid: timedelta = CERTIFICATE_VALID) -> bytes:
        """Sign the certificate (PEM) with which the operator asks the server, valid at most as long as the authority's own.

        Raises
        ------
        AnchorageError
            The request does not fit.
        """
        uri = operator_uri(self.federation)
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
                identity.CERTIFICATE_EXPIRED, f"the authority of {self.federation} is no longer valid and cannot sign"
            )
        alternative = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri), *map(_general_name, names)])
        certificate = (
            _certificate_builder(key, x509.Name([]), self._certificate.subject, now)
            .not_valid_after(min(now + valid, self._certificate.not_valid_after_utc))
            .add_extension(alternative, critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)


def _require_one_authority(key: PrivateKey, certificate: x509.Certificate, federation: str, what: str) -> None:
    """Check that a key and a certificate belong to one federation's authority.

    Raises
    ------
    AnchorageError
        They are not.
    """
    if certificate.public_key() != key.public_key() or uris_of(certificate) != [authority_uri(federation)]:
        raise AnchorageError(identity.AUTHORITY_UNUSABLE, f"{what} are not one federation's authority")


def _name(federation: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, federation)])


def _self_signed(key: PrivateKey, federation: str, now: datetime, valid: timedelta) -> x509.Certificate:
    certificate = _authority_certificate(key.public_key(), federation, _name(federation), now)
    return certificate.not_valid_after(now + valid).sign(key, hashes.SHA256())


def _authority_certificate(key: PublicKey, federation: str, name: x509.Name, now: datetime) -> x509.CertificateBuilder:
    alternative = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(authority_uri(federation))])
    return (
        _certificate_builder(key, name, name, now)
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )


def _certificate_builder(
    key: PublicKey, subject: x509.Name, issuer: x509.Name, now: datetime
) -> x509.CertificateBuilder:
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

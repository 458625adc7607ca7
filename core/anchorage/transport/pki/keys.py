"""Private keys and certificate signing requests."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from anchorage.api.errors import AnchorageError, identity
from anchorage.api.regular_files import read_regular
from anchorage.transport.files import write_atomically
from anchorage.transport.pki.identity import UNREADABLE, uris_of

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey


def make_key() -> PrivateKey:
    """Make an EC P-256 key in memory."""
    return ec.generate_private_key(ec.SECP256R1())


def key_to_pem(key: PrivateKey) -> bytes:
    """Write a key as PKCS 8, PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def key_from_pem(pem: bytes, what: str) -> PrivateKey:
    """Read what `key_to_pem` wrote; `what` names it in the failure.

    Raises
    ------
    AnchorageError
        It is no EC P-256 key.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise AnchorageError(
            identity.CREDENTIALS_UNUSABLE, f"{what} cannot be read as a private key: {type(error).__name__}"
        ) from error
    if not isinstance(key, PrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise AnchorageError(identity.CREDENTIALS_UNUSABLE, f"{what} holds a key of another kind than EC P-256")
    return key


def new_key(path: Path) -> PrivateKey:
    """Make an EC P-256 key and write it to `path` (PKCS 8, PEM, mode 0600), in place of a key that was there.

    Raises
    ------
    OSError
        The folder is missing, full or not writable.
    """
    key = make_key()
    write_atomically(path, key_to_pem(key), mode=0o600, durable=True)
    return key


def load_key(path: Path) -> PrivateKey:
    """Read what `new_key` wrote.

    Raises
    ------
    AnchorageError
        The file cannot be read or holds no EC P-256 key.
    """
    try:
        pem = read_regular(path)
    except OSError as error:
        raise AnchorageError(
            identity.CREDENTIALS_UNUSABLE, f"{path} cannot be read as a private key: {error.strerror}"
        ) from error
    return key_from_pem(pem, str(path))


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A checked request for a certificate: the sender holds its key, an EC P-256 one, and it asks for one URI name."""

    uri: str
    """The name that is asked for."""
    public_key: PublicKey
    """The key that the certificate would be over."""

    @staticmethod
    def make(key: PrivateKey, uri: str) -> bytes:
        """Write the request (PEM) of the owner of `key` for the name `uri`; it holds only the key's public half."""
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
        builder = (
            x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).add_extension(names, critical=True)
        )
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    @classmethod
    def parse(cls, pem: bytes) -> "SigningRequest":
        """Read and check a request.

        Raises
        ------
        AnchorageError
            It is no request, its signature is not of its own key, the key is no EC P-256 key, or it does not ask
            for exactly one URI name.
        """
        try:
            request = x509.load_pem_x509_csr(pem)
            signed = request.is_signature_valid
            key = request.public_key()
            uris = uris_of(request)
        except UNREADABLE as error:
            raise AnchorageError(
                identity.REQUEST_REFUSED, "what was sent is not a PEM certificate signing request"
            ) from error
        if not isinstance(key, PublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise AnchorageError(identity.REQUEST_REFUSED, "the request's key is not an EC P-256 key")
        if not signed:
            raise AnchorageError(identity.REQUEST_REFUSED, "the request is not signed with the key that it carries")
        if len(uris) != 1:
            raise AnchorageError(identity.REQUEST_REFUSED, f"the request asks for {len(uris)} URI names, expected one")
        return cls(uris[0], key)


def public_bytes(key: PublicKey) -> bytes:
    """Return a public key as SubjectPublicKeyInfo, DER."""
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def key_fingerprint(pem: bytes) -> str:
    """Return the SHA-256 of the public key (SubjectPublicKeyInfo, DER) in a certificate or a signing request, 64 hexadecimal digits.

    Parameters
    ----------
    pem : bytes
        A certificate or a signing request, PEM.

    Raises
    ------
    AnchorageError
        It is neither.
    """
    try:
        holder = (
            x509.load_pem_x509_csr(pem)
            if b"CERTIFICATE REQUEST" in pem.partition(b"\n")[0]
            else x509.load_pem_x509_certificate(pem)
        )
        key = holder.public_key()
        der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    except UNREADABLE as error:
        raise AnchorageError(
            identity.CREDENTIALS_UNUSABLE, "what was given is neither a PEM certificate nor a PEM signing request"
        ) from error
    return hashlib.sha256(der).hexdigest()

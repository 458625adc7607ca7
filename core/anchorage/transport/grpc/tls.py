"""TLS credentials of server and silo for grpcio, from files that may be rotated."""

import time
from typing import Any

import grpc
from cryptography.hazmat.primitives import serialization

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.api.regular_files import read_regular
from anchorage.transport.pki import Credentials, certificate_of, key_from_pem, key_to_pem, uris_of
from anchorage.transport.pki.credentials import certificates_of, issuer_of, read_certificate


def server_credentials(credentials: Credentials, *, mutual: bool) -> grpc.ServerCredentials:
    """Return credentials that are reloaded at a handshake when their files have changed.

    Parameters
    ----------
    credentials : Credentials
        The server's TLS files.
    mutual : bool
        Whether a client must show a certificate of the authority.

    Raises
    ------
    AnchorageError
        A file cannot be read, or they do not belong together.
    """
    known = _contents(credentials)
    _check(credentials)

    def configuration() -> grpc.ServerCertificateConfiguration:
        key, certificate, authority = known
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority if mutual else None)

    def reload() -> Any:  # None for no change, which the type stubs do not know
        nonlocal known
        try:
            contents = _contents(credentials)
        except AnchorageError:
            return None
        if contents == known or not _belong_together(contents):  # files that are being replaced, one after another
            return None
        known = contents
        return configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), reload, require_client_authentication=mutual)


def channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    """Return a silo's credentials as its files are now.

    Raises
    ------
    AnchorageError
        A file cannot be read, they do not belong together, or the certificate is not valid now.
    """
    _check(credentials)
    key, certificate, authority = _contents(credentials)
    return grpc.ssl_channel_credentials(authority, key, certificate)


def federation_of(credentials: Credentials) -> str:
    """Return the federation that a certificate's URI names.

    Raises
    ------
    AnchorageError
        It names none.
    """
    uris = uris_of(read_certificate(credentials.certificate))
    if len(uris) != 1 or not uris[0].startswith("anchorage://"):
        detail = f"the certificate {credentials.certificate} names no federation: enrol again"
        raise AnchorageError(identity.CREDENTIALS_UNUSABLE, detail)
    return uris[0].removeprefix("anchorage://").partition("/")[0]


def bind(server: grpc.Server, listen: str, credentials: grpc.ServerCredentials) -> int:
    """Bind a server to an address and return the port.

    Raises
    ------
    AnchorageError
        The address is taken or not this machine's.
    """
    try:
        return server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        detail = f"{listen} is taken or not an address of this machine; choose another"
        raise AnchorageError(transfer.CANNOT_LISTEN, detail) from error


def _belong_together(contents: tuple[bytes, bytes, bytes]) -> bool:
    """Return whether a key and a certificate over it could be read, and the certificate is of the authority."""
    key, certificate, authority = contents
    try:
        issued = certificate_of(certificate, "the certificate")
        by = issuer_of(issued, certificates_of(authority, "the authority's certificate"))
        return by is not None and issued.public_key() == key_from_pem(key, "the key").public_key()
    except AnchorageError:
        return False


def _check(credentials: Credentials) -> None:
    uris = uris_of(read_certificate(credentials.certificate))
    credentials.check(uris[0] if uris else "", time.time)


def _contents(credentials: Credentials) -> tuple[bytes, bytes, bytes]:
    """Return key, certificate and authority, PEM."""
    key, certificate, _ = credentials.read()
    try:
        trusted = read_regular(credentials.authority)
        return key_to_pem(key), certificate.public_bytes(serialization.Encoding.PEM), trusted
    except OSError as error:
        detail = f"{error.filename} cannot be read: {error.strerror}"
        raise AnchorageError(identity.CREDENTIALS_UNUSABLE, detail) from error

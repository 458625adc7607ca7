"""Checks of ``fedctl doctor`` on the connection to a federation: network path, TLS handshake, certificate."""

import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from cryptography import x509

from anchorage.api.errors import AnchorageError, cluster
from anchorage.api.regular_files import read_regular
from anchorage.transport.pki.identity import server_uri, uris_of
from fedctl.checkup import Check, Level
from fedctl.invitation import address_parts

TIMEOUT_SECONDS = 10.0
EXPIRES_SOON_SECONDS = 7 * 86_400
_MOST_BYTES = 65_536

_REMEDIES = {
    9: "set this machine's clock; the certificate is not valid yet",
    10: "the certificate has expired: see that the operator runs, it renews it",
    62: "add the name to spec.server.names, or use an address that the certificate holds",
    64: "add the address to spec.server.names, or use a name that the certificate holds",
}
"""By OpenSSL's verification codes."""
_OTHER_AUTHORITY = (
    "see that the authority is this federation's (fedctl silo invite writes it) and that no proxy on the way opens TLS"
)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected certificate of the federation's server."""

    authority: str = ""
    """The federation's ca.pem; empty where it is not known."""
    federation: str = ""
    """Its name; empty where it is not known."""
    addresses: tuple[str, ...] = ()
    """Where to reach it, host:port."""


def read_expectation(path: Path) -> Expectation:
    """Read a ca.pem, or an enrolment.yaml; its token is not kept.

    Raises
    ------
    AnchorageError
        It is neither, or cannot be read.
    """
    try:
        text = read_regular(path).decode()
        values: Any = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise AnchorageError(cluster.ENROLMENT_FILE_UNUSABLE, f"{path} cannot be read: {why}") from error
    section = values.get("enrolment") if isinstance(values, dict) else None
    if isinstance(section, dict):
        addresses = tuple(str(section[key]) for key in ("server", "enrolment") if section.get(key))
        expectation = Expectation(str(section.get("authority", "")), str(section.get("federation", "")), addresses)
    else:
        expectation = Expectation(text)
    try:
        x509.load_pem_x509_certificates(expectation.authority.encode())
    except ValueError as error:
        raise AnchorageError(
            cluster.ENROLMENT_FILE_UNUSABLE, f"{path} holds no certificate (PEM); name ca.pem or enrolment.yaml"
        ) from error
    return expectation


def address_checks(address: str, expected: Expectation, proxy: str | None) -> Iterator[Check]:
    """Connect to an address as an agent would, and check the response.

    Parameters
    ----------
    address : str
        host:port.
    expected : Expectation
        What must be shown.
    proxy : str or None
        HTTP proxy to go through, ``http://host:port``.
    """
    host, port = address_parts(address)
    host = host.strip("[]")
    try:
        connection = _through(proxy, host, port) if proxy else socket.create_connection((host, port), TIMEOUT_SECONDS)
    except OSError as error:
        remedy = "check the name, the port, the firewall on the way out, and that the server's Service has this address"
        yield Check(f"reach {address}", Level.FAIL, _why(error), remedy)
        return
    with connection:
        yield Check(f"reach {address}", Level.OK, "connected" + (f" through {proxy}" if proxy else ""))
        yield from _handshake(connection, host, address, expected)


def _handshake(connection: socket.socket, host: str, address: str, expected: Expectation) -> Iterator[Check]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    if expected.authority:
        context.load_verify_locations(cadata=expected.authority)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the authority need not have certified itself
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    name = f"TLS {address}"
    try:
        with context.wrap_socket(connection, server_hostname=host) as secured:
            shown = secured.getpeercert(binary_form=True) or b""
    except ssl.SSLCertVerificationError as error:
        remedy = _REMEDIES.get(error.verify_code, _OTHER_AUTHORITY)
        yield Check(name, Level.FAIL, f"the certificate is refused: {error.verify_message}", remedy)
        return
    except OSError as error:
        remedy = "what answers speaks no TLS 1.3: is this the server's port, and does no proxy on the way open TLS?"
        yield Check(name, Level.FAIL, _why(error), remedy)
        return
    certificate = x509.load_der_x509_certificate(shown)
    if expected.authority:
        yield Check(
            name, Level.OK, "TLS 1.3; the certificate is signed by the federation's authority, and of this name"
        )
    else:
        yield Check(name, Level.WARN, "TLS 1.3; the certificate was not checked", "name the authority with --ca")
    yield certificate_check(certificate, address, expected.federation, time.time())


def certificate_check(certificate: x509.Certificate, address: str, federation: str, now: float) -> Check:
    """Check the certificate's owner and its validity."""
    name, uris = f"certificate {address}", uris_of(certificate)
    if federation and uris != [server_uri(federation)]:
        detail = f"it is of {', '.join(uris) or 'nobody'}, not of the server of {federation}"
        return Check(name, Level.FAIL, detail, "the address leads to another server; compare it with the invitation")
    remaining_seconds = certificate.not_valid_after_utc.timestamp() - now
    detail = f"{', '.join(uris) or 'no federation'}, valid until {certificate.not_valid_after_utc:%Y-%m-%d}"
    if remaining_seconds <= 0:
        return Check(name, Level.FAIL, f"{detail}: expired", _REMEDIES[10])
    if remaining_seconds < EXPIRES_SOON_SECONDS:
        return Check(name, Level.WARN, detail, "it should have been renewed; see that the operator runs")
    return Check(name, Level.OK, detail)


def _through(proxy: str, host: str, port: int) -> socket.socket:
    """Open a connection through an HTTP proxy.

    Raises
    ------
    OSError
        The proxy cannot be reached, or refuses.
    """
    place = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    connection = socket.create_connection((place.hostname or "", place.port or 3128), TIMEOUT_SECONDS)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        connection.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n") and len(head) < _MOST_BYTES:
            byte = connection.recv(1)
            if not byte:
                break
            head += byte
        line = head.split(b"\r\n")[0].decode(errors="replace")
        if line.split(" ")[1:2] != ["200"]:
            raise ConnectionError(f"the proxy {proxy} says {line or 'nothing'}")
    except OSError:
        connection.close()
        raise
    return connection


def _why(error: OSError) -> str:
    return " ".join((error.strerror or str(error) or type(error).__name__).split())

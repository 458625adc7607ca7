"""Enrolment: a key that never leaves the state folder, and a certificate for it in exchange for a one-time token."""

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from anchorage.api.errors import AnchorageError, identity, silo, transfer
from anchorage.api.regular_files import read_regular
from anchorage.transport.files import write_atomically
from anchorage.transport.grpc.enrolment import ask_time, enrol
from anchorage.transport.peer_clock import PeerClock
from anchorage.transport.pki import Credentials, SigningRequest, key_fingerprint, load_key, new_key, silo_uri
from anchorage.transport.pki.keys import PrivateKey
from anchorage_silo.audit import AuditLog
from anchorage_silo.authorities import authorities_file, keep_authorities
from anchorage_silo.config import SiloConfig
from anchorage_silo.files import state_unusable
from anchorage_silo.server_retry import ServerRetry

USED_TOKEN = "token.sha256"
"""File with the digest of the token that the silo enrolled with."""

_log = logging.getLogger(__name__)


def credentials_of(config: SiloConfig) -> Credentials:
    """Return the paths of the silo's TLS files, which may not exist yet."""
    return Credentials(config.state / "silo.key", config.state / "silo.crt", authorities_file(config))


def ensure_enrolled(
    config: SiloConfig, audit: AuditLog, retry: ServerRetry, clock: PeerClock, now: Callable[[], float] = time.time
) -> Credentials:
    """Return the silo's credentials; enrol first if there is no valid certificate. `clock` is told what time the server has.

    Raises
    ------
    AnchorageError
        There is no token, the server refuses it or does not answer, the clocks differ too much, or a file is unusable.
    """
    keep_authorities(config)
    credentials = credentials_of(config)
    uri = silo_uri(config.federation, config.silo)
    if credentials.certificate.exists():
        try:
            credentials.check(uri, now)
        except AnchorageError as error:
            if config.token is None:
                raise explain(config, clock, error) from error
            _log.warning("enrolling again: %s", error)
        else:
            return credentials
    token, request_file = _token(config), config.state / "silo.csr"
    try:
        key = load_key(credentials.key) if credentials.key.exists() else new_key(credentials.key)
        request = _pending_request(request_file, key, uri)
        audit.record("enrol", nbytes=len(request))
        _log.info("requesting enrolment; SHA-256 of the key: %s", key_fingerprint(request))
        credentials.save_certificate(
            retry.until_answered(
                "enrolment",
                lambda: enrol(
                    config.enrolment, credentials.authority, config.silo, token, request, config.proxy, clock
                ),
            )
        )
        write_atomically(config.state / USED_TOKEN, _digest(token), mode=0o600, durable=True)
        request_file.unlink()
    except OSError as error:
        raise state_unusable(config.state, error) from error
    except AnchorageError as error:
        if error.failure is not transfer.SERVER_UNREACHABLE:
            request_file.unlink(missing_ok=True)  # refused: the next start makes a new request
        raise
    try:
        credentials.check(uri, now)
    except AnchorageError as error:
        raise clock.explain(error) from error
    _log.info("enrolled as silo %s of federation %s", config.silo, config.federation)
    return credentials


def explain(config: SiloConfig, clock: PeerClock, error: AnchorageError) -> AnchorageError:
    """Return the failure of a certificate or a connection; in its place the clock's, where the server answers a stranger, with another time."""
    if error.failure in (identity.CERTIFICATE_EXPIRED, transfer.SERVER_UNREACHABLE):
        ask_time(config.enrolment, authorities_file(config), config.proxy, clock)
    return clock.explain(error)


def has_new_token(config: SiloConfig) -> bool:
    """Return whether the configured token differs from the one that the silo enrolled with."""
    used = config.state / USED_TOKEN
    if config.token is None or not (config.token.exists() and used.exists()):
        return False
    return read_regular(used) != _digest(_token(config))


def forget_identity(config: SiloConfig) -> None:
    """Delete key and certificate, so that the agent enrols as if for the first time.

    Raises
    ------
    AnchorageError
        The state folder is not writable.
    """
    credentials = credentials_of(config)
    try:
        for path in (credentials.certificate, credentials.key):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise state_unusable(config.state, error) from error


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).hexdigest().encode()


def _pending_request(path: Path, key: PrivateKey, uri: str) -> bytes:
    """Return the stored unanswered request, so that a restarted agent repeats it, or else a new one; PEM.

    Raises
    ------
    OSError
        The folder is not writable.
    """
    if path.exists():
        request = read_regular(path)
        try:
            if SigningRequest.parse(request) == SigningRequest(uri, key.public_key()):
                return request
        except AnchorageError as error:
            _log.warning("making a new certificate request: %s: %s", path, error)
    request = SigningRequest.make(key, uri)
    write_atomically(path, request, mode=0o600, durable=True)
    return request


def _token(config: SiloConfig) -> str:
    if config.token is None:
        detail = f"silo {config.silo} has no certificate in {config.state} and no token in its configuration"
        raise AnchorageError(silo.NOT_ENROLLED, detail)
    try:
        return read_regular(config.token).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise AnchorageError(silo.NOT_ENROLLED, f"the token file {config.token} cannot be read: {why}") from error

"""Becoming a known silo: a key that never leaves the state folder, and a certificate over it for a one-time token."""

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from anchorage.api.errors import AnchorageError, silo, transfer
from anchorage.transport.files import write_atomically
from anchorage.transport.grpc.enrolment import enrol
from anchorage.transport.pki import Credentials, SigningRequest, key_fingerprint, load_key, new_key, silo_uri
from anchorage.transport.pki.keys import PrivateKey
from anchorage_silo.audit import AuditLog
from anchorage_silo.config import SiloConfig
from anchorage_silo.files import unusable
from anchorage_silo.patience import Patience

USED_TOKEN = "token.sha256"
"""File that remembers with which token the silo enrolled."""

_log = logging.getLogger(__name__)


def credentials_of(config: SiloConfig) -> Credentials:
    """Return where the silo's TLS files lie, or will lie."""
    return Credentials(config.state / "silo.key", config.state / "silo.crt", config.authority)


def enrolled(
    config: SiloConfig, audit: AuditLog, patience: Patience, now: Callable[[], float] = time.time
) -> Credentials:
    """Return the silo's credentials; enrol where there is no certificate that is valid now.

    Raises
    ------
    AnchorageError
        There is no token, the server refuses it or does not answer, or a file cannot be used.
    """
    credentials = credentials_of(config)
    uri = silo_uri(config.federation, config.silo)
    if credentials.certificate.exists():
        try:
            credentials.check(uri, now)
        except AnchorageError as error:
            if config.token is None:
                raise
            _log.warning("enrolling again: %s", error)
        else:
            return credentials
    token, asked = _token(config), config.state / "silo.csr"
    try:
        key = load_key(credentials.key) if credentials.key.exists() else new_key(credentials.key)
        request = _open_request(asked, key, uri)
        audit.record("enrol", nbytes=len(request))
        _log.info("asking to enrol with the key of SHA-256 %s", key_fingerprint(request))
        credentials.save_certificate(
            patience.until_answered(
                "the enrolment",
                lambda: enrol(config.enrolment, config.authority, config.silo, token, request, config.proxy),
            )
        )
        write_atomically(config.state / USED_TOKEN, _digest(token), mode=0o600, durable=True)
        asked.unlink()
    except OSError as error:
        raise unusable(config.state, error) from error
    except AnchorageError as error:
        if error.failure is not transfer.SERVER_UNREACHABLE:
            asked.unlink(missing_ok=True)  # it was refused; who starts the agent again asks anew
        raise
    credentials.check(uri, now)
    _log.info("enrolled as silo %s of federation %s", config.silo, config.federation)
    return credentials


def invited_again(config: SiloConfig) -> bool:
    """Return whether there is a token, and it is another one than that which the silo enrolled with."""
    used = config.state / USED_TOKEN
    if config.token is None or not (config.token.exists() and used.exists()):
        return False
    return used.read_bytes() != _digest(_token(config))


def forget_identity(config: SiloConfig) -> None:
    """Remove key and certificate, so that the agent enrols as if for the first time.

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
        raise unusable(config.state, error) from error


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).hexdigest().encode()


def _open_request(path: Path, key: PrivateKey, uri: str) -> bytes:
    """Return the request that waits for an answer, so that a restarted agent does not ask anew; else a new one, PEM.

    Raises
    ------
    OSError
        The folder is not writable.
    """
    if path.exists():
        request = path.read_bytes()
        try:
            if SigningRequest.parse(request) == SigningRequest(uri, key.public_key()):
                return request
        except AnchorageError as error:
            _log.warning("asking for a certificate anew: %s: %s", path, error)
    request = SigningRequest.make(key, uri)
    write_atomically(path, request, mode=0o600, durable=True)
    return request


def _token(config: SiloConfig) -> str:
    if config.token is None:
        found = f"silo {config.silo} has no certificate in {config.state} and no token in its configuration"
        raise AnchorageError(silo.NOT_ENROLLED, found)
    try:
        return config.token.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AnchorageError(
            silo.NOT_ENROLLED, f"the token file {config.token} cannot be read: {type(error).__name__}"
        ) from error

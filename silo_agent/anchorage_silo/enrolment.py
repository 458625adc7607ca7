"""Becoming a known silo: a key that never leaves the state folder, and a certificate over it for a one-time token."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from anchorage.errors import AnchorageError, silo, transfer
from anchorage.pki import Credentials, SigningRequest, load_key, new_key, silo_uri
from anchorage.wire.enrolment import enrol
from anchorage_silo.audit import AuditLog
from anchorage_silo.config import SiloConfig
from anchorage_silo.files import unusable

PATIENCE_SECONDS = 120.0
"""How long an agent that was started before its server waits for it."""
PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


def enrolled(config: SiloConfig, audit: AuditLog, now: Callable[[], float] = time.time) -> Credentials:
    """Return the silo's credentials; enrol where there is no certificate that is valid now.

    Raises
    ------
    AnchorageError
        There is no token, the server refuses it or does not answer, or a file cannot be used.
    """
    credentials = Credentials(config.state / "silo.key", config.state / "silo.crt", config.authority)
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
    token = _token(config)
    try:
        key = load_key(credentials.key) if credentials.key.exists() else new_key(credentials.key)
        request = SigningRequest.make(key, uri)
        audit.record("enrol", nbytes=len(request))
        credentials.save_certificate(
            patiently(lambda: enrol(config.enrolment, config.authority, config.silo, token, request))
        )
    except OSError as error:
        raise unusable(config.state, error) from error
    credentials.check(uri, now)
    _log.info("enrolled as silo %s of federation %s", config.silo, config.federation)
    return credentials


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


def patiently(call: Callable[[], T]) -> T:
    """Call again while the server does not answer, for `PATIENCE_SECONDS`.

    Raises
    ------
    AnchorageError
        What the call raised, and that the server did not answer in time.
    """
    end, pause = time.monotonic() + PATIENCE_SECONDS, PAUSE_SECONDS
    while True:
        try:
            return call()
        except AnchorageError as error:
            if error.failure is not transfer.SERVER_UNREACHABLE or time.monotonic() + pause > end:
                raise
            _log.info("waiting for the server: %s", error)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

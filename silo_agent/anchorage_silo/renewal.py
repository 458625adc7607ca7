"""Renewal of the silo's certificate, started when two thirds of its lifetime are over."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.pki import Credentials, SigningRequest, load_key
from anchorage.transport.pki.authority import BACKDATED
from anchorage.transport.pki.credentials import read_certificate
from anchorage.transport.retry import Backoff, RetryPolicy
from anchorage_silo.audit import AuditLog
from anchorage_silo.files import state_unusable
from anchorage_silo.server_retry import ATTEMPT_SECONDS, LONGEST_PAUSE_SECONDS, UNDECIDED

PART = "certificate renewal"
CHECK_SECONDS = 60.0
"""Maximum interval between checks of the certificate: clocks jump and machines sleep."""
LEAST_PAUSE_SECONDS = 1.0
END_SECONDS = 1.0
LONGEST_BACK_OFF_SECONDS = 300.0
"""Longest pause between attempts after a refusal."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class CertificateRenewal:
    """Replaces a silo's certificate when two thirds of its lifetime are over; the key stays the same.

    The file is replaced atomically. New connections use the new certificate; open connections continue.

    `uri` is the silo's name in the certificate. `request_certificate` sends a signing request (PEM) once and returns the certificate (PEM), or raises
    AnchorageError. `now` returns seconds since the epoch.
    """

    credentials: Credentials
    uri: str
    request_certificate: Callable[[bytes], bytes]
    audit: AuditLog
    vitals: LivenessRegistry
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._candidate = replace(self.credentials, certificate=self.credentials.certificate.with_name("silo.crt.new"))
        self._request = self._logged = b""
        self._back_off = Backoff(RetryPolicy(0.1, LONGEST_BACK_OFF_SECONDS, jitter=-0.5))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renewal", daemon=True)

    def start(self) -> None:
        """Start the renewal thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; wait for an open request for at most `END_SECONDS`."""
        self._over.set()
        self._thread.join(END_SECONDS)
        self.vitals.rest(PART)

    def step(self) -> float:
        """Renew the certificate if it is due; return the seconds until the next check."""
        try:
            left = self._due() - self.now()
            if left > 0:
                self._request = b""
                return max(min(left, CHECK_SECONDS), LEAST_PAUSE_SECONDS)
            if not self._request:
                self._request = SigningRequest.make(load_key(self.credentials.key), self.uri)
                self.audit.record("renew", nbytes=len(self._request))
            self._install(self.request_certificate(self._request))
        except AnchorageError as error:
            return self._pause_after(error)
        self._request = b""
        self._back_off.reset()
        return LEAST_PAUSE_SECONDS

    def _due(self) -> float:
        """Return the time of renewal, after two thirds of the certificate's lifetime, in seconds since the epoch."""
        certificate = read_certificate(self.credentials.certificate)
        begin, end = certificate.not_valid_before_utc + BACKDATED, certificate.not_valid_after_utc
        return (begin + (end - begin) * 2 / 3).timestamp()

    def _install(self, pem: bytes) -> None:
        """Replace the present certificate by a valid one that expires later.

        Raises
        ------
        AnchorageError
            The certificate is for another key or name, from another authority, not valid now, does not expire later, or cannot be written.
        """
        try:
            self._candidate.save_certificate(pem)
            self._candidate.check(self.uri, self.now)
            expires = self._candidate.expires()
            if expires <= self.credentials.expires():
                found = "the received certificate does not expire later than the present one"
                raise AnchorageError(identity.CREDENTIALS_UNUSABLE, found)
            self._candidate.certificate.replace(self.credentials.certificate)
        except OSError as error:
            raise state_unusable(self.credentials.certificate, error) from error
        finally:
            self._candidate.certificate.unlink(missing_ok=True)
        _log.info("the certificate was renewed; it is valid until %s", time.strftime("%FT%TZ", time.gmtime(expires)))

    def _pause_after(self, error: AnchorageError) -> float:
        if error.failure in UNDECIDED:
            logged, self._logged = self._logged, self._request
            if logged != self._request:
                _log.info("waiting for a new certificate: %s", error)
            return min(max(self._back_off.next(), LEAST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        _log.warning("the certificate was not renewed: %s", error)
        return max(self._back_off.next(), LEAST_PAUSE_SECONDS)

    def _run(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            self.vitals.expect(PART, ATTEMPT_SECONDS)
            pause = self.step()
            self.vitals.expect(PART, pause + ATTEMPT_SECONDS)

"""The next certificate, asked for while the present one is still good for a third of its life."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.pki import Credentials, SigningRequest, load_key
from anchorage.transport.pki.authority import BACKDATED
from anchorage.transport.pki.credentials import read_certificate
from anchorage.transport.retry import Backoff, RetryPolicy
from anchorage_silo.audit import AuditLog
from anchorage_silo.files import unusable
from anchorage_silo.patience import ATTEMPT_SECONDS, LONGEST_PAUSE_SECONDS, UNDECIDED

PART = "the certificate's renewal"
LOOK_SECONDS = 60.0
"""How often the certificate is looked at: clocks jump and machines sleep."""
LEAST_PAUSE_SECONDS = 1.0
END_SECONDS = 1.0
LONGEST_BACK_OFF_SECONDS = 300.0
"""How often a refused renewal is asked for again."""

_log = logging.getLogger(__name__)


class Renewal:
    """Replaces a silo's certificate when two thirds of its life are over.

    The key stays. The new certificate takes the file's place whole; connections that are made from then on show it, open ones stay.

    Parameters
    ----------
    credentials : Credentials
        The silo's TLS files.
    uri : str
        The silo's name.
    ask : callable
        Asks once with a signing request (PEM) and returns the certificate (PEM), or raises AnchorageError.
    audit : AuditLog
        Where it is written down that a request leaves.
    vitals : LivenessRegistry
        Is told whether the thread lives and moves.
    now : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        credentials: Credentials,
        uri: str,
        ask: Callable[[bytes], bytes],
        audit: AuditLog,
        vitals: LivenessRegistry,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._credentials = credentials
        self._candidate = replace(credentials, certificate=credentials.certificate.with_name("silo.crt.new"))
        self._uri = uri
        self._ask = ask
        self._audit = audit
        self._vitals = vitals
        self._now = now
        self._request = self._said = b""
        self._back_off = Backoff(RetryPolicy(0.1, LONGEST_BACK_OFF_SECONDS, jitter=-0.5))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renewal", daemon=True)

    def start(self) -> None:
        """Renew from now on, in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop; a request that is on its way is waited for only a moment."""
        self._over.set()
        self._thread.join(END_SECONDS)
        self._vitals.rest(PART)

    def step(self) -> float:
        """Do what is due now, and return the seconds until the next look."""
        try:
            left = self._due() - self._now()
            if left > 0:
                self._request = b""
                return max(min(left, LOOK_SECONDS), LEAST_PAUSE_SECONDS)
            if not self._request:
                self._request = SigningRequest.make(load_key(self._credentials.key), self._uri)
                self._audit.record("renew", nbytes=len(self._request))
            self._take(self._ask(self._request))
        except AnchorageError as error:
            return self._later(error)
        self._request = b""
        self._back_off.reset()
        return LEAST_PAUSE_SECONDS

    def _due(self) -> float:
        """Return when two thirds of the certificate's life are over, seconds since the epoch."""
        certificate = read_certificate(self._credentials.certificate)
        begin, end = certificate.not_valid_before_utc + BACKDATED, certificate.not_valid_after_utc
        return (begin + (end - begin) * 2 / 3).timestamp()

    def _take(self, pem: bytes) -> None:
        """Put a certificate in the present one's place, if it is a good one that lasts longer.

        Raises
        ------
        AnchorageError
            It is over another key, by another authority, for another name or not valid now, lasts no longer, or cannot be written.
        """
        try:
            self._candidate.save_certificate(pem)
            self._candidate.check(self._uri, self._now)
            expires = self._candidate.expires()
            if expires <= self._credentials.expires():
                found = "the certificate that was sent lasts no longer than the present one"
                raise AnchorageError(identity.CREDENTIALS_UNUSABLE, found)
            self._candidate.certificate.replace(self._credentials.certificate)
        except OSError as error:
            raise unusable(self._credentials.certificate, error) from error
        finally:
            self._candidate.certificate.unlink(missing_ok=True)
        _log.info("the certificate was renewed; it is valid until %s", time.strftime("%FT%TZ", time.gmtime(expires)))

    def _later(self, error: AnchorageError) -> float:
        if error.failure in UNDECIDED:
            said, self._said = self._said, self._request
            if said != self._request:
                _log.info("waiting for a new certificate: %s", error)
            return min(max(self._back_off.next(), LEAST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        _log.warning("the certificate was not renewed: %s", error)
        return max(self._back_off.next(), LEAST_PAUSE_SECONDS)

    def _run(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            self._vitals.expect(PART, ATTEMPT_SECONDS)
            pause = self.step()
            self._vitals.expect(PART, pause + ATTEMPT_SECONDS)

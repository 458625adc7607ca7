"""Renewal of the silo's certificate when two thirds of its lifetime are over, and over a new key when people ask for one."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.peer_clock import PeerClock
from anchorage.transport.pki import Credentials, SigningRequest, key_fingerprint, load_key, new_key
from anchorage.transport.pki.authority import BACKDATED
from anchorage.transport.pki.credentials import issuer_of, read_certificate
from anchorage.transport.pki.keys import PrivateKey
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

NEXT_KEY = "silo.key.new"
"""File of the state folder with the key that is to take the place of the present one."""

_log = logging.getLogger(__name__)


def ask_for_new_key(credentials: Credentials) -> None:
    """Make a key that takes the place of the present one; one that was made before and waits is kept.

    Raises
    ------
    AnchorageError
        The state folder is not writable.
    """
    path = credentials.key.with_name(NEXT_KEY)
    try:
        if not path.exists():
            new_key(path)
    except OSError as error:
        raise state_unusable(path, error) from error


def _is_signed_now(credentials: Credentials) -> bool:
    """Return whether the authority that signs now issued the certificate, not one whose place it takes."""
    _, certificate, authorities = credentials.read()
    return issuer_of(certificate, authorities[:1]) is not None


@dataclass(eq=False)
class CertificateRenewal:
    """Replaces a silo's certificate when two thirds of its lifetime are over, over the same key, or over a new one at once when it is asked for.

    The files are replaced so that whoever reads them finds two that fit. New connections use the new certificate; open connections continue, but
    for a new key, with which they are made again: the server then refuses the old one. Where the federation has a new authority, which `learn`
    finds out, the certificate is renewed at once.

    `uri` is the silo's name in the certificate. `request_certificate` sends a signing request (PEM) once and returns the certificate (PEM), or raises
    AnchorageError. `show_key` makes the connections again, with a new key. `clock` knows whether the server's agrees with `now`, seconds since
    the epoch.
    """

    credentials: Credentials
    uri: str
    request_certificate: Callable[[bytes], bytes]
    audit: AuditLog
    liveness: LivenessRegistry
    now: Callable[[], float] = time.time
    show_key: Callable[[], None] = lambda: None
    clock: PeerClock = field(default_factory=PeerClock)
    learn: Callable[[bool], None] = lambda at_once: None

    def __post_init__(self) -> None:
        self._candidate = replace(self.credentials, certificate=self.credentials.certificate.with_name("silo.crt.new"))
        self._next = replace(self._candidate, key=self.credentials.key.with_name(NEXT_KEY))
        self._request = self._logged = b""
        self._unshown = False
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
        self.liveness.rest(PART)

    def step(self) -> float:
        """Renew the certificate if it is due; return the seconds until the next check."""
        try:
            self.learn(False)
            self.change_key()
            remaining = self._due() - self.now()
            if remaining > 0:
                self._request = b""
                return max(min(remaining, CHECK_SECONDS), LEAST_PAUSE_SECONDS)
            self._install(self._certificate_over(load_key(self.credentials.key)))
        except AnchorageError as error:
            return self._pause_after(self.clock.explain(error))
        self._request = b""
        self._back_off.reset()
        return LEAST_PAUSE_SECONDS

    def change_key(self) -> None:
        """Where `ask_for_new_key` made a key, get a certificate over it, put both in place of the present ones, and show them.

        Raises
        ------
        AnchorageError
            The server refuses, has not decided yet or does not answer, or what it answers cannot be used; the present key stays, unless the
            server has only not seen the new one yet.
        """
        if self._next.key.exists():
            self._install_key(self._certificate_over(load_key(self._next.key)))
            self._request, self._unshown = b"", True
        if self._unshown:
            self.show_key()
            self._unshown = False

    def _certificate_over(self, key: PrivateKey) -> bytes:
        """Ask for a certificate, with the same request until there is an answer."""
        if not self._request or SigningRequest.parse(self._request).public_key != key.public_key():
            self._request = SigningRequest.make(key, self.uri)
            self.audit.record("renew", nbytes=len(self._request), digest=key_fingerprint(self._request))
        pem = self.request_certificate(self._request)
        self.learn(True)  # it may be of an authority that was not heard of yet
        return pem

    def _install_key(self, pem: bytes) -> None:
        try:
            self._next.save_certificate(pem)
            self._next.check(self.uri, self.now)
            self.credentials.change_key(self._next)
        except OSError as error:
            raise state_unusable(self.credentials.key, error) from error
        finally:
            self._next.certificate.unlink(missing_ok=True)
        _log.info("the key was changed; SHA-256 of the key: %s", key_fingerprint(pem))

    def _due(self) -> float:
        """Return the time of renewal, seconds since the epoch: after two thirds of the lifetime, or at once where another authority signs now."""
        certificate = read_certificate(self.credentials.certificate)
        if not _is_signed_now(self.credentials):
            return 0.0
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
            later = expires > self.credentials.expires() or not _is_signed_now(self.credentials)
            if not later or not _is_signed_now(self._candidate):
                detail = "the received certificate does not expire later than the present one, or is of an authority before the present one"
                raise AnchorageError(identity.CREDENTIALS_UNUSABLE, detail)
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
            self.liveness.expect(PART, ATTEMPT_SECONDS)
            pause = self.step()
            self.liveness.expect(PART, pause + ATTEMPT_SECONDS)

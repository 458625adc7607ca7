"""Whom the silo trusts: the authority of its configuration, and those that it comes to trust through it."""

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.regular_files import read_regular
from anchorage.transport.files import write_atomically
from anchorage.transport.pki import Credentials
from anchorage.transport.pki.credentials import read_certificates
from anchorage.transport.pki.succession import accepted_authorities
from anchorage_silo.config import SiloConfig
from anchorage_silo.files import state_unusable

LEARN_SECONDS = 300.0
"""Time between two questions for the server's authorities."""

_log = logging.getLogger(__name__)


def authorities_file(config: SiloConfig) -> Path:
    """Return the file of the state folder with the authorities that are trusted, or the configured one until `keep_authorities`.

    Another configured authority, as of a new invitation, begins anew.
    """
    try:
        digest = hashlib.sha256(read_regular(config.authority)).hexdigest()
    except OSError:
        return config.authority
    snapshot = config.state / f"authorities-{digest[:16]}.pem"
    return snapshot if snapshot.exists() else config.authority


def keep_authorities(config: SiloConfig) -> None:
    """Trust the configured authority from now on, and those that it vouches for.

    Raises
    ------
    AnchorageError
        The state folder is not writable.
    """
    if authorities_file(config) != config.authority or not config.authority.exists():
        return
    content = read_regular(config.authority)
    snapshot = config.state / f"authorities-{hashlib.sha256(content).hexdigest()[:16]}.pem"
    try:
        write_atomically(snapshot, content, mode=0o644, durable=True)
    except OSError as error:
        raise state_unusable(snapshot, error) from error


@dataclass(eq=False)
class TrustedAuthorities:
    """Follows the server from one authority to the next.

    `uri` is the silo's name in the certificate, `ask` returns the server's authorities and their endorsements, PEM, or raises AnchorageError;
    `now` is in seconds since the epoch.
    """

    credentials: Credentials
    federation: str
    uri: str
    ask: Callable[[], tuple[bytes, bytes]]
    now: Callable[[], float] = time.time
    _asked: float = field(default=-LEARN_SECONDS, init=False)

    def learn(self, at_once: bool = False) -> None:
        """Ask, unless that was a short while ago and need not be `at_once`, and take what is endorsed; else it stays as it is."""
        if not at_once and abs(self.now() - self._asked) < LEARN_SECONDS:
            return
        self._asked = self.now()
        try:
            offered, endorsements = self.ask()
        except AnchorageError as error:
            _log.debug("the server's authorities are not known: %s", error)
            return
        file = self.credentials.authority
        try:
            certificates = accepted_authorities(
                read_certificates(file), offered, endorsements, self.federation, self.now()
            )
            if certificates == read_regular(file):
                return
            self._take(certificates)
        except OSError as error:
            _log.warning("%s", state_unusable(file, error))
        except AnchorageError as error:
            _log.warning("%s", error)

    def _take(self, certificates: bytes) -> None:
        """Write them, where the present certificate is of one of them.

        Raises
        ------
        AnchorageError
            It is not.
        OSError
            The file cannot be written.
        """
        file = self.credentials.authority
        candidate = replace(self.credentials, authority=file.with_name(f"{file.name}.new"))
        try:
            write_atomically(candidate.authority, certificates, mode=0o644, durable=True)
            candidate.check(self.uri, self.now)
            candidate.authority.replace(file)
        finally:
            candidate.authority.unlink(missing_ok=True)
        _log.info("the federation's authorities changed: %d are trusted now", certificates.count(b"BEGIN CERTIFICATE"))

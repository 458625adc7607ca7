"""One-time enrolment tokens: stored hashed, expiring, bound to a silo's name and to the first key that uses them."""

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from anchorage.api.errors import AnchorageError, identity
from anchorage.api.regular_files import read_regular
from anchorage.transport.files import write_once

TOKEN_VALID = timedelta(days=7)


class Tokens:
    """The tokens of one federation: a folder with one small file per token, and one per use.

    The folder knows only SHA-256 sums of the tokens (which have 256 random bits), so reading it enrols nobody.

    Parameters
    ----------
    folder : Path
        Made (mode 0700) with the first token.
    now : callable
        Seconds since the epoch.
    """

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now

    def create(self, silo: str, *, valid: timedelta = TOKEN_VALID) -> str:
        """Create a token with which the silo of this name may enrol once.

        Raises
        ------
        AnchorageError
            The folder cannot be written.
        """
        token = secrets.token_urlsafe(32)
        content = json.dumps({"silo": silo, "expires": self._now() + valid.total_seconds()})
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_once(self._path(token, "json"), content.encode())
        except OSError as error:
            raise AnchorageError(
                identity.AUTHORITY_UNUSABLE, f"{self._folder} cannot be written: {error.strerror}"
            ) from error
        return token

    def check(self, token: str, silo: str) -> None:
        """Check that a token is known, belongs to this silo, and has not expired.

        Raises
        ------
        AnchorageError
            It is not.
        """
        try:
            stored = json.loads(read_regular(self._path(token, "json")))
        except FileNotFoundError:
            raise AnchorageError(
                identity.TOKEN_UNKNOWN, f"the token that silo {silo!r} showed was not issued here"
            ) from None
        if stored["silo"] != silo:
            raise AnchorageError(
                identity.TOKEN_OF_ANOTHER_SILO, f"the token that silo {silo!r} showed was issued for another silo"
            )
        if stored["expires"] < self._now():
            raise AnchorageError(identity.TOKEN_EXPIRED, f"the token of silo {silo!r} has expired; issue a new one")

    def consume(self, token: str, silo: str, public_key: bytes) -> None:
        """Consume a token for one key, atomically: if two keys compete for it, one is refused.

        The same key may come again until the token expires, for the certificate that a broken connection kept from it.

        Parameters
        ----------
        token, silo : str
            The token, and the silo that shows it.
        public_key : bytes
            The key that enrols, SubjectPublicKeyInfo, DER.

        Raises
        ------
        AnchorageError
            As `check`, or the token was used with another key.
        """
        self.check(token, silo)
        fingerprint = hashlib.sha256(public_key).hexdigest().encode()
        used = self._path(token, "used")
        try:
            write_once(used, fingerprint)
        except FileExistsError:
            if read_regular(used) != fingerprint:
                raise AnchorageError(
                    identity.TOKEN_USED, f"the token of silo {silo!r} was used before, with another key"
                ) from None

    def _path(self, token: str, suffix: str) -> Path:
        return self._folder / f"{hashlib.sha256(token.encode()).hexdigest()}.{suffix}"

"""Enrolment tokens that were refused: one line a minute and address in the log, growing delays, and their number."""

import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from anchorage.api.errors import AnchorageError, identity
from anchorage.api.text import printable

REFUSALS = (
    identity.TOKEN_UNKNOWN,
    identity.TOKEN_USED,
    identity.TOKEN_EXPIRED,
    identity.TOKEN_OF_ANOTHER_SILO,
)
FREE = 3
"""Refused tokens of one address and silo that cost nothing, such as a truncated copy."""
LONGEST_SECONDS = 60.0
"""Longest delay, from the tenth refused token on; so long waits, at most, a silo whose address somebody else guessed from, once that has ended."""
FORGOTTEN_SECONDS = 600.0
"""Time after the last refused token after which a silo's name at an address is as if new."""
LINE_SECONDS = 60.0
MOST_LINES = 60
"""Lines a minute in all; what an address has no line of is counted in its next one."""
MOST_ADDRESSES = 1024
"""Addresses that are known; the one whose last refused token is longest ago makes room."""
MOST_NAMES = 8
"""Silos' names that are told apart at an address; further ones share their delay."""
_NAME_LENGTH = 64

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Silo:
    refused: int = 0
    last: float = 0.0
    until: float = 0.0
    undecided: bytes = b""
    """Digest of the token that waits for the coordinating site's answer."""


@dataclass(slots=True)
class _Address:
    silos: dict[str, _Silo] = field(default_factory=dict)
    unlogged: int = 0
    logged_at: float = float("-inf")


class RefusedTokens:
    """Counts and slows down who shows tokens that are refused; a request that comes too early is refused at once and holds no thread.

    Delays are of a silo's name at an address: a silo that shares its address with somebody who guesses in other names is not held up by that.

    Parameters
    ----------
    now : callable
        Seconds that only ever grow.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = Lock()
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._lines, self._lines_since = 0, float("-inf")
        self._count = 0

    @property
    def count(self) -> int:
        """Tokens that were refused, or given up for another one before the coordinating site had answered."""
        return self._count

    def ask(self, address: str, silo: str, token: str, enrol: Callable[[], bytes]) -> bytes:
        """Have a token looked at, unless its sender has to wait.

        Parameters
        ----------
        address : str
            Who asks, as `anchorage.transport.addresses.party_of` has it.
        silo : str
            As whom.
        token : str
            The token; an empty one, by which agents ask for the time, counts as none.
        enrol : callable
            Returns the certificate, PEM, or raises AnchorageError.

        Raises
        ------
        AnchorageError
            TOO_MANY_REQUESTS: it is too early, and the token was not looked at. As well as what `enrol` raises.
        """
        if not token:
            return enrol()
        with self._lock:
            self._refuse_early(address, silo)
        try:
            certificate = enrol()
        except AnchorageError as error:
            if error.failure in REFUSALS:
                with self._lock:
                    self._note_refusal(address, silo, error.code)
            elif error.failure is identity.ENROLMENT_PENDING:
                with self._lock:
                    self._note_undecided(address, silo, token)
            raise
        with self._lock:
            if (known := self._addresses.get(address)) is not None:
                known.silos.pop(silo[:_NAME_LENGTH], None)
        return certificate

    def _refuse_early(self, address: str, silo: str) -> None:
        known = self._addresses.get(address)
        attempts = None if known is None else known.silos.get(_name_at(known, silo))
        if attempts is None or (wait_seconds := attempts.until - self._now()) <= 0:
            return
        detail = f"{attempts.refused} tokens that silo {printable(silo[:_NAME_LENGTH])} showed from this address were refused"
        raise AnchorageError(identity.TOO_MANY_REQUESTS, f"{detail}; try again in {math.ceil(wait_seconds)} s")

    def _note_undecided(self, address: str, silo: str, token: str) -> None:
        """Note a token that nobody has decided on; where another one of the same silo was not decided on either, that counts as refused."""
        attempts, digest = self._silo(address, silo), hashlib.sha256(token.encode(errors="replace")).digest()
        if attempts.undecided not in (b"", digest):
            self._note_refusal(address, silo, identity.ENROLMENT_PENDING.code)
        attempts.undecided = digest

    def _note_refusal(self, address: str, silo: str, code: str) -> None:
        now, attempts = self._now(), self._silo(address, silo)
        self._count += 1
        attempts.refused, attempts.last = attempts.refused + 1, now
        if attempts.refused > FREE:
            attempts.until = now + min(2.0 ** min(attempts.refused - FREE - 1, 16), LONGEST_SECONDS)
        self._tell(address, silo, code, now)

    def _silo(self, address: str, silo: str) -> _Silo:
        """Return what is known of a silo's name at an address, which makes room."""
        now = self._now()
        known = self._addresses.setdefault(address, _Address())
        self._addresses.move_to_end(address)
        if len(self._addresses) > MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        for name in [name for name, each in known.silos.items() if now - each.last > FORGOTTEN_SECONDS]:
            del known.silos[name]
        return known.silos.setdefault(_name_at(known, silo), _Silo(last=now))

    def _tell(self, address: str, silo: str, code: str, now: float) -> None:
        known = self._addresses[address]
        known.unlogged += 1
        if now - self._lines_since >= LINE_SECONDS:
            self._lines, self._lines_since = 0, now
        if now - known.logged_at < LINE_SECONDS or self._lines >= MOST_LINES:
            return
        self._lines += 1
        facts = {"address": address, "refused": known.unlogged, "silo": printable(silo[:_NAME_LENGTH]), "code": code}
        _log.warning("enrolment tokens were refused", extra=facts)
        known.logged_at, known.unlogged = now, 0


def _name_at(known: _Address, silo: str) -> str:
    """Return under which name a silo is known at an address: its own, or the one that is left for all others."""
    name = silo[:_NAME_LENGTH]
    return name if name in known.silos or len(known.silos) < MOST_NAMES else ""

"""Whether this machine's clock agrees with that of the other end of a connection, whose certificates are valid by both clocks only."""

import logging
import re
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from anchorage.api.errors import AnchorageError, identity, transfer

TIME = "anchorage-time"
"""Name of the metadata in which the server says its time, whole seconds since the epoch."""
TOLERATED_SECONDS = 300.0
"""By how much clocks may differ; a certificate is valid as long before its issue."""

LATEST = 253_402_300_799
"""The last second of the year 9999."""
_SECONDS = re.compile(r"[0-9]{1,12}")
_EXPLAINED = (identity.CERTIFICATE_EXPIRED, transfer.SERVER_UNREACHABLE)
"""Failures that a clock that is off explains; a server that refuses a certificate only closes the connection."""

_log = logging.getLogger(__name__)


class PeerClock:
    """What the server said last of its clock; may be used by several threads.

    `now` is this machine's clock, seconds since the epoch.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.wrong = ""
        """That the clocks differ by more than is tolerated, with both times; empty where they agree, or nothing is known yet."""

    def note(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
        """Compare the clocks by the initial metadata of an answer; where there is no time in it, nothing changes."""
        peer_time = str(dict(metadata or ()).get(TIME, ""))
        if not _SECONDS.fullmatch(peer_time) or int(peer_time) > LATEST:
            return
        before, self.wrong = self.wrong, difference(self._now(), int(peer_time), "this machine's clock", "the server's")
        if self.wrong and not before:
            _log.warning("%s", AnchorageError(identity.CLOCK_OFF, self.wrong))

    def explain(self, error: AnchorageError) -> AnchorageError:
        """Return the failure of a certificate or a connection, or in its place the clock's, where that is off."""
        if not self.wrong or error.failure not in _EXPLAINED:
            return error
        return AnchorageError(identity.CLOCK_OFF, f"{self.wrong}; {error.message}")


def difference(this_time: float, other: float, whose: str, others: str) -> str:
    """Return by how much two clocks differ, in words; empty where it is tolerated.

    Parameters
    ----------
    this_time, other : float
        Their times, seconds since the epoch.
    whose, others : str
        What they are called.
    """
    gap = this_time - other
    if abs(gap) <= TOLERATED_SECONDS:
        return ""
    by = f"{abs(gap) / 60:.0f} min" if abs(gap) < 172_800 else f"{abs(gap) / 86_400:.0f} days"
    return f"{whose} says {_read(this_time)}, {others} {_read(other)}: it is {by} {'ahead' if gap > 0 else 'behind'}"


def _read(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"

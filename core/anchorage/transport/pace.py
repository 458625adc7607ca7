"""How fast the chunks of a transfer move, and how long those that are left take."""

import math
from dataclasses import dataclass

MEMORY_SECONDS = 20.0
"""How long ago a chunk moved that weighs e times less in the rate: several chunks of a line of 1 Mbit/s, and an outage shows within a minute."""
SLOWEST = 1.0
"""Rate in bytes per second below which nothing is said of the time left."""


@dataclass(frozen=True, slots=True)
class Travel:
    """What is on its way at one time."""

    rate: float = 0.0
    """Bytes per second, as they travel."""
    seconds_left: float | None = None
    """None while that is not known."""

    def __add__(self, other: "Travel") -> "Travel":
        """Return two transfers that go on at the same time as one."""
        ends = [seconds for seconds in (self.seconds_left, other.seconds_left) if seconds is not None]
        return Travel(self.rate + other.rate, max(ends, default=None))


class Pace:
    """The pace of one transfer.

    Parameters
    ----------
    chunks : int
        How many are to come.
    now : float
        When it begins, in seconds.
    """

    def __init__(self, chunks: int, now: float) -> None:
        self._chunks, self._moved, self._nbytes = chunks, 0, 0
        self._recent_bytes = self._recent_seconds = 0.0
        self._at = now

    def move(self, nbytes: int, now: float) -> None:
        """Note that a chunk has moved, in so many bytes."""
        self._recent_bytes, self._recent_seconds = self._recent(now)
        self._recent_bytes += nbytes
        self._at, self._moved, self._nbytes = now, self._moved + 1, self._nbytes + nbytes

    def travel(self, now: float) -> Travel:
        """Return the present rate; the chunks that are left are taken to be as long, encoded, as those before."""
        nbytes, seconds = self._recent(now)
        rate = nbytes / seconds if seconds > 0 else 0.0
        if rate < SLOWEST:
            return Travel(rate)
        remaining = max(self._chunks - self._moved, 0) * self._nbytes / self._moved
        return Travel(rate, remaining / rate)

    def _recent(self, now: float) -> tuple[float, float]:
        """Return the bytes that moved and the seconds that went by, both weighed by their age."""
        decay = math.exp(min(self._at - now, 0.0) / MEMORY_SECONDS)
        return self._recent_bytes * decay, self._recent_seconds * decay + (1.0 - decay) * MEMORY_SECONDS

"""How long to wait before something that failed is tried again."""

import random
from collections.abc import Callable
from dataclasses import dataclass

RANDOM = random.Random()
"""Spreads pauses. A generator of its own: the process' one is left to whoever seeded it."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Pauses that grow with every failure in a row, up to a limit."""

    first_seconds: float
    """Pause after the first failure."""
    longest_seconds: float = float("inf")
    """Limit of the growth."""
    factor: float = 2.0
    """Growth with each further failure."""
    jitter: float = 0.0
    """Share of the pause that chance adds, or takes away where it is negative, so that many do not come back at once."""

    def pause(self, failures: int, at_least: float = 0.0, chance: Callable[[], float] = RANDOM.random) -> float:
        """Return the seconds to wait.

        Parameters
        ----------
        failures : int
            Failures in a row, 1 or more.
        at_least : float
            Seconds that the other side asked to wait.
        chance : callable
            A number in [0, 1).
        """
        grown = self.first_seconds * self.factor ** min(failures - 1, 64)
        return max(at_least, min(grown, self.longest_seconds)) * (1 + self.jitter * chance())


class Backoff:
    """Counts failures in a row, and says how long to wait after each."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures = 0

    def next(self) -> float:
        """Count a failure, and return the seconds to wait."""
        self._failures += 1
        return self._policy.pause(self._failures)

    def reset(self) -> None:
        """Forget the failures after a success."""
        self._failures = 0

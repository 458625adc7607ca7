"""Waiting for a server that is not there yet, or has not decided yet."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from anchorage.api.errors import AnchorageError, identity, silo, transfer
from anchorage.transport.retry import Backoff, RetryPolicy
from anchorage_silo.state import AgentState

LONGEST_PAUSE_SECONDS = 10.0
_RETRY = RetryPolicy(0.2, LONGEST_PAUSE_SECONDS, factor=1.5)
ATTEMPT_SECONDS = 60.0
"""More than one attempt takes."""
TOLD_AGAIN_SECONDS = 60.0
"""How often the log says that the same failure still stands."""

UNDECIDED = (identity.ENROLMENT_PENDING, identity.TOO_MANY_REQUESTS, silo.APPROVAL_NEEDED)
"""Answers that ask for time: people may take days."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ServerRetry:
    """Asks again while a better answer may come.

    Parameters
    ----------
    seconds : float
        How long a server that does not answer is waited for. 0 for ever; then a silo that is no member waits to become one, too.
    state : AgentState
        Is told what is waited for.
    clock, sleep : callable
        Seconds that only ever grow, and the way to let them pass.
    """

    def __init__(
        self,
        seconds: float,
        state: AgentState,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit = seconds or float("inf")
        self._passing = (
            transfer.SERVER_UNREACHABLE,
            identity.CLOCK_OFF,
            *(() if seconds else (transfer.SILO_NOT_ADMITTED,)),
        )
        self._state = state
        self._clock = clock
        self._sleep = sleep

    def until_answered(self, part: str, ask: Callable[[], T]) -> T:
        """Return the first answer of `ask`.

        Parameters
        ----------
        part : str
            What asks, for the liveness probe.
        ask : callable
            Asks once, for less than `ATTEMPT_SECONDS`.

        Raises
        ------
        AnchorageError
            The answer is a final refusal, or the server did not answer in time.
        """
        end, backoff = self._clock() + self._limit, Backoff(_RETRY)
        logged_failure, told_at = None, 0.0
        try:
            while True:
                pause = backoff.next()
                self._state.liveness.expect(part, ATTEMPT_SECONDS + LONGEST_PAUSE_SECONDS)
                try:
                    return ask()
                except AnchorageError as error:
                    if error.failure in UNDECIDED:
                        end = self._clock() + self._limit
                    elif error.failure not in self._passing or self._clock() + pause > end:
                        raise
                    self._state.waiting = str(error)
                    if error.failure is not logged_failure or self._clock() - told_at >= TOLD_AGAIN_SECONDS:
                        logged_failure, told_at = error.failure, self._clock()
                        _log.info("waiting: %s", error)
                self._sleep(pause)
        finally:
            self._state.liveness.rest(part)

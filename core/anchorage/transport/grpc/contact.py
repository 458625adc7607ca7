"""The state of a silo's connection to the server, for probes and metrics."""

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.peer_clock import PeerClock

PART = "the session with the server"


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """End it."""
        ...


C = TypeVar("C", bound=Closable)


class Contact:
    """Whether a session is open, when the server last responded, and how many bytes of models were transferred.

    The session's thread alone opens and closes; several threads count bytes.

    Parameters
    ----------
    liveness : LivenessRegistry
        Receives the deadlines of the session's thread.
    now : callable
        Seconds since the epoch.
    """

    def __init__(self, liveness: LivenessRegistry, now: Callable[[], float] = time.time) -> None:
        self._liveness = liveness
        self._now = now
        self._lock = threading.Lock()
        self._dialling = threading.Lock()
        self._held: Closable | None = None
        self._last_contact_time = 0.0
        self._received = self._sent = 0
        self.clock = PeerClock(now)
        """Whether the clocks of both ends agree."""
        self.connected = False
        """Whether a session is open. A dead line is noticed within two pings (`anchorage.transport.grpc.calls.PING_SECONDS`)."""
        self.lost = ""
        """Why no session is open, one line; empty before the first failed attempt."""

    @property
    def heard(self) -> float:
        """When the server last responded, seconds since the epoch: now while a session is open, 0 before the first one."""
        return self._now() if self.connected else self._last_contact_time

    @property
    def moved(self) -> tuple[int, int]:
        """Bytes of models received and of updates sent."""
        with self._lock:
            return self._received, self._sent

    def dial(self, connect: Callable[[], C]) -> C:
        """Return a new connection, with the TLS files as they are now."""
        with self._dialling:
            connection = connect()
            self._held = connection
            return connection

    def redial(self) -> None:
        """End a connection that was made with the TLS files of before; its session goes on in another."""
        with self._dialling:
            if self._held is not None:
                self._held.close()

    def trying(self, seconds: float) -> None:
        """Record that an attempt to open a session ends within `seconds`."""
        self._liveness.expect(PART, seconds)

    def record_opened(self) -> None:
        """Record that a session is open."""
        self.connected, self.lost = True, ""
        self._liveness.rest(PART)

    def record_closed(self, why: str) -> None:
        """Record that no session is open, and why."""
        if self.connected:
            self._last_contact_time = self._now()
        self.connected, self.lost = False, why

    def record_ended(self, *, planned: bool) -> None:
        """Record that no further session will be opened; if that was not planned, the liveness probe fails."""
        self._liveness.rest(PART) if planned else self._liveness.expect(PART, 0.0)

    def count_received(self, nbytes: int) -> None:
        """Count bytes of a model."""
        with self._lock:
            self._received += nbytes

    def count_sent(self, nbytes: int) -> None:
        """Count bytes of an update."""
        with self._lock:
            self._sent += nbytes

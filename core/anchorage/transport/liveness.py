"""Detects threads of a process that are stuck, for its liveness probe."""

import threading
import time
from collections.abc import Callable


class LivenessRegistry:
    """Deadlines by which the parts of a process must report again.

    Parameters
    ----------
    clock : callable
        Seconds that only ever grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due: dict[str, float] = {}

    def expect(self, part: str, seconds: float) -> None:
        """Set the deadline of a part: it will report again within `seconds`."""
        with self._lock:
            self._due[part] = self._clock() + seconds

    def rest(self, part: str) -> None:
        """Remove the deadline of a part that waits without a limit or has ended."""
        with self._lock:
            self._due.pop(part, None)

    def describe_overdue(self) -> str:
        """Return the parts that missed their deadline, one line; empty if there are none."""
        now = self._clock()
        with self._lock:
            late = [f"{part} is overdue by {now - due:.0f} s" for part, due in self._due.items() if now > due]
        return "; ".join(late)

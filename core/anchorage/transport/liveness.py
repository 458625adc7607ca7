"""Whether the threads of a process live and move, for its liveness probe."""

import threading
import time
from collections.abc import Callable


class LivenessRegistry:
    """Every part that must not stand still says by when it will be heard of again.

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
        """Say that a part will be heard of again within `seconds`."""
        with self._lock:
            self._due[part] = self._clock() + seconds

    def rest(self, part: str) -> None:
        """Say that a part waits for something that needs no limit, or has ended as it should."""
        with self._lock:
            self._due.pop(part, None)

    def stuck(self) -> str:
        """Return what does not move, one line; empty where everything does."""
        now = self._clock()
        with self._lock:
            late = [f"{part} is overdue by {now - due:.0f} s" for part, due in self._due.items() if now > due]
        return "; ".join(late)

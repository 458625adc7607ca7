"""The machine's time."""

import time


class SystemClock:
    """Wall-clock time that does not follow corrections of the clock within a run (`Clock`)."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._offset + time.monotonic()

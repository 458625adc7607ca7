"""An idle timeout for transfers: it limits the time without progress, never the total time."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Watchdog:
    """Cancels transfers without progress.

    Parameters
    ----------
    idle_seconds : float
        Longest time without progress.
    """

    def __init__(self, idle_seconds: float) -> None:
        self._idle = idle_seconds
        self._moved: dict[Callable[[], object], float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="idle-timeout", daemon=True)
        self._thread.start()

    @contextmanager
    def watch(self, cancel: Callable[[], object]) -> Iterator[Callable[[], None]]:
        """Watch a transfer within the block; the block calls the yielded function whenever it makes progress."""

        def note_progress() -> None:
            self._moved[cancel] = time.monotonic()

        with self._lock:
            note_progress()
        try:
            yield note_progress
        finally:
            with self._lock:
                del self._moved[cancel]

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._idle / 4):
            with self._lock:
                late = [cancel for cancel, at in self._moved.items() if time.monotonic() - at > self._idle]
            for cancel in late:
                cancel()

"""Looks again and again at what people may change while a server runs outside a cluster: who is denied, and the authority."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Generic, TypeVar

LOOK_SECONDS = 0.5
"""Time between two looks."""

T = TypeVar("T")


class Watch(Generic[T]):
    """Tells of every change.

    Parameters
    ----------
    look : callable
        Returns what is there.
    changed : callable
        Is told what is there, where it is something else than at the look before.
    """

    def __init__(self, look: Callable[[], T], changed: Callable[[T], None]) -> None:
        self._look, self._changed = look, changed
        self._over = Event()
        self._thread = Thread(target=self._watch, args=(look(),), name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()

    def _watch(self, before: T) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if (now := self._look()) != before:
                before = now
                self._changed(now)

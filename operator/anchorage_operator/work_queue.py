"""A queue of keys with delays: each key is queued once, and retried with back-off after failures."""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Condition
from typing import Generic, TypeVar

from anchorage.transport.retry import RANDOM, RetryPolicy

Key = TypeVar("Key", bound=Hashable)

JITTER = 0.2
"""Back-off and repetition are spread over this share of their length, so that many keys do not come due at once."""
RETRY = RetryPolicy(0.2, 30.0, jitter=JITTER)
"""Pauses after failures of a key."""


@dataclass(slots=True)
class _Entry:
    due: float = 0.0
    """When to hand it out, on the clock's scale; infinity while nothing asks for it."""
    started_at: float | None = None
    """When a worker took it; None while none has it."""
    failures: int = 0


class WorkQueue(Generic[Key]):
    """Hands out keys when they are due, each to one worker at a time.

    A key that is added while it waits is handed out once, at the earliest of the times asked for. A key that is added while a
    worker has it is handed out again when the worker is done.

    Parameters
    ----------
    clock : callable
        Seconds on a scale that never goes back.
    spread : callable
        A number in [0, 1) for the jitter.
    """

    def __init__(self, clock: Callable[[], float], spread: Callable[[], float] = RANDOM.random) -> None:
        self._clock = clock
        self._spread = spread
        self._entries: dict[Key, _Entry] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._changed = Condition()
        self._closed = False
        self._held = False
        self._opened = -math.inf

    def __len__(self) -> int:
        """Keys that are due now and wait for a worker."""
        with self._changed:
            now = self._clock()
            return sum(entry.started_at is None and entry.due <= now for entry in self._entries.values())

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Hand out a key in `delay` seconds or earlier."""
        with self._changed:
            self._schedule(key, self._clock() + delay)

    def discard(self, key: Key) -> None:
        """Remove a key and its failures, unless a worker holds it."""
        with self._changed:
            entry = self._entries.get(key)
            if entry and entry.started_at is None:
                del self._entries[key]

    def take(self) -> Key | None:
        """Hand out the key that is due longest, or None where none is due."""
        with self._changed:
            return self._take()

    def wait(self) -> Key | None:
        """Wait for a key that is due; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                key = self._take()
                if key is not None:
                    return key
                self._changed.wait(self._heap[0][0] - self._clock() if self._heap and not self._held else None)
            return None

    def done(self, key: Key, retry_after: float | None = None) -> None:
        """Return a key after success; it is handed out again in about `retry_after` seconds (None: when it is added)."""
        with self._changed:
            entry = self._entries[key]
            entry.failures = 0
            self._give_back(key, entry, None if retry_after is None else retry_after * (1 - JITTER * self._spread()))

    def failed(self, key: Key, at_least: float = 0.0) -> float:
        """Return a key after a failure; returns the seconds until it is handed out again, at least `at_least`.

        What was added meanwhile does not shorten the wait: a change that cannot be carried out must not make a hot loop.
        """
        with self._changed:
            entry = self._entries[key]
            entry.failures += 1
            delay = RETRY.pause(entry.failures, at_least, self._spread)
            entry.due = float("inf")
            self._give_back(key, entry, delay)
            return delay

    def overdue(self) -> float:
        """Longest time in seconds that a due key waited for a worker, or that a worker has been at one."""
        with self._changed:
            now = self._clock()
            starts = [entry.started_at for entry in self._entries.values() if entry.started_at is not None]
            if not self._held:
                starts += [max(each.due, self._opened) for each in self._entries.values() if each.started_at is None]
            return max([0.0, *(now - start for start in starts)])

    def hold(self) -> None:
        """Hand out nothing until `open`; what is added meanwhile waits."""
        with self._changed:
            self._held = True

    def open(self) -> None:
        """Hand out keys again."""
        with self._changed:
            self._held, self._opened = False, self._clock()
            self._changed.notify_all()

    def close(self) -> None:
        """Make `wait` return None for all workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self) -> Key | None:
        while not self._held and self._heap and self._heap[0][0] <= self._clock():
            due, _, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            if entry and entry.started_at is None and entry.due == due:
                entry.started_at, entry.due = self._clock(), float("inf")
                return key
        return None

    def _schedule(self, key: Key, due: float) -> None:
        entry = self._entries.setdefault(key, _Entry(float("inf")))
        if entry.failures and entry.started_at is None:
            return  # it waits for its back-off
        if due < entry.due:
            entry.due = due
            if entry.started_at is None:
                heapq.heappush(self._heap, (due, next(self._order), key))
                self._changed.notify()

    def _give_back(self, key: Key, entry: _Entry, delay: float | None) -> None:
        entry.started_at = None
        due = entry.due if delay is None else min(entry.due, self._clock() + delay)
        if due == float("inf"):
            del self._entries[key]
            return
        entry.due = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._changed.notify()

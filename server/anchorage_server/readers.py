"""Who reads a server's state folder: a server that is to end waits for them, so that no pod is replaced under a copy of its model."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anchorage.transport.link import Clock

READERS_SECONDS = 45.0
"""How long a server that is to end waits for readers of its results; Kubernetes ends it after 60 s."""
LOCK = "readers.lock"
_LOOK_SECONDS = 0.2


@contextmanager
def reading(state: Path) -> Iterator[None]:
    """Be a reader of a state folder; of one that may not be written, nobody is told."""
    try:
        handle = os.open(state / LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def await_readers(state: Path, clock: Clock, seconds: float) -> bool:
    """Wait until nobody reads a state folder, at most so many seconds of the clock; return whether nobody does."""
    try:
        handle = os.open(state / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        deadline = clock.now() + seconds
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if clock.now() >= deadline:
                    return False
            except OSError:  # a file system without locks
                return True
            time.sleep(_LOOK_SECONDS)
    finally:
        os.close(handle)

"""Waits of the driver: each has an end, which no busy machine brings nearer."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.05


def holds_within(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds, and say whether it did in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def holds_at_last(
    holds: Callable[[], bool],
    seconds: float,
    progress: Callable[[], object],
    within: Callable[[Callable[[], bool], float], bool] = holds_within,
) -> bool:
    """Wait as `holds_within`, and again as long as there was progress meanwhile."""
    progress_now = progress()
    while not within(holds, seconds):
        before, progress_now = progress_now, progress()
        if progress_now == before:
            return False
    return True

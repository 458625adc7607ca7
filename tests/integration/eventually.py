"""The one wait for what another process tells only when it is asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_SECONDS = 150.0
"""A bound for a test that would hang, far above what a busy machine takes."""


def eventually(ask: Callable[[], T], failed: str = "it did not come true") -> T:
    """Ask again and again until the answer is true, and return it."""
    end = time.monotonic() + WAIT_SECONDS
    while not (answer := ask()):
        assert time.monotonic() < end, failed
        time.sleep(0.02)
    return answer

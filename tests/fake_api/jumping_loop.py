"""An event loop in fake time: where nothing is left to do but wait, its clock jumps to what is due next."""

import asyncio
import selectors

GRACE_SECONDS = 0.005
"""Real seconds in which bytes between two sockets of this process are given to arrive before time jumps."""
MOST_STEPS = 50_000
"""Steps of the loop at one moment of its time; more are a hot loop."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """Both ends of every connection must live in this loop: nobody else knows its time."""

    def __init__(self):
        self.now = 1000.0
        super().__init__(_Jumping(self))

    def time(self):
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop):
        super().__init__()
        self._loop = loop
        self._steps = 0

    def select(self, timeout=None):
        self._steps += 1
        assert self._steps < MOST_STEPS, "a hot loop"
        ready = super().select(0.0 if timeout == 0 else GRACE_SECONDS)
        if not ready and timeout:
            self._loop.now += timeout
            self._steps = 0
        return ready

"""What SIGTERM and SIGINT do."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import STOPPED
from anchorage.transport.grpc import GrpcSiloLink

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping(link: GrpcSiloLink) -> Iterator[None]:
    """Turn the first SIGTERM or SIGINT into a clean stop, and a second one into an immediate end."""
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(STOPPED.exit_code)
        asked = True
        link.request_stop(f"received {signal.Signals(number).name}")

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_at_once(status: int) -> None:
    """Let a signal end the process with this exit status while nothing runs that would have to be stopped; signals that waited come now.

    Everything on disk is written whole or not at all, so nothing needs to be tidied. The handler raises no exception: logging would swallow it.
    """

    def end(number: int, frame: FrameType | None) -> None:
        if status:
            stopped = AnchorageError(STOPPED, f"received {signal.Signals(number).name}; start again to resume")
            os.write(sys.stderr.fileno(), f"{stopped}\n".encode())
        os._exit(status)

    for number in SIGNALS:
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def start_again() -> NoReturn:
    """Put a new process with the same arguments in the place of this one, which lets go of all memory; a signal waits until it is ready.

    Raises
    ------
    OSError
        The interpreter cannot be started.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    sys.stderr.flush()
    os.execv(sys.executable, sys.orig_argv)

"""Downloads by libraries that set no limit to how long an address may be silent."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

SILENT_SECONDS = 15.0


@contextmanager
def limiting_silence() -> Iterator[None]:
    """Limit how long each address of a name has to accept a connection, and a server to send more, within the block."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)

"""What may stand where a file is expected, and waits or never ends when it is read."""

import os
import stat
from pathlib import Path

KINDS = ("pipe", "socket", "device")
DESCRIPTIONS = {"pipe": "a named pipe", "socket": "a socket", "device": "a device"}
"""What messages call them."""
SECONDS = 60
"""Time limit of a test that hangs where one of them is opened."""


def put(kind: str, path: Path) -> Path:
    """Put one of them at a path."""
    if kind == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mknod(path, (stat.S_IFIFO if kind == "pipe" else stat.S_IFSOCK) | 0o600)
    return path

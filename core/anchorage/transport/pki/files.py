"""Files that only their owner may read, written whole or not at all."""

import os
import secrets
from pathlib import Path


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Write a file durably under a temporary name with its final mode, then rename it.

    Raises
    ------
    OSError
        The folder is missing, full or not writable; the file is then as before.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        _write_durably(temporary, content, mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_once(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet, mode 0600; of several writers exactly one succeeds.

    Raises
    ------
    FileExistsError
        The file is there already.
    OSError
        The folder is missing, full or not writable.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        _write_durably(temporary, content, 0o600)
        path.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)


def _write_durably(path: Path, content: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)  # whatever the umask
        file.write(content)
        file.flush()
        os.fsync(handle)

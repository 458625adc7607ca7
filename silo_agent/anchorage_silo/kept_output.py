"""What a trainer process prints, kept in a file of the agent's state folder and in no log: it may name images."""

import logging
import os
from pathlib import Path
from typing import IO

from anchorage_silo.files import state_unusable

OUTPUT_FILE = "trainer.log"
MOST_BYTES = 1 << 20
"""Size at which the file takes the name ``trainer.log.1``, in the place of an earlier one, and another is begun."""
LINE_BYTES = 4096

_log = logging.getLogger(__name__)


def output_file(state: Path) -> Path:
    """Return the file, which only the agent's user may read."""
    return state / OUTPUT_FILE


def keep_output(stream: IO[bytes], state: Path) -> None:
    """Append all that comes out of a stream to the file, to its end; a disk that is full loses it, and the log says so once."""
    is_warned = False
    with stream:
        while line := stream.readline(LINE_BYTES):
            try:
                _append(output_file(state), line)
            except OSError as error:
                if not is_warned:
                    _log.warning(
                        "what the trainer process prints is lost: %s", state_unusable(output_file(state), error)
                    )
                is_warned = True


def _append(file: Path, line: bytes) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        full = os.fstat(handle).st_size + len(line) > MOST_BYTES
        if not full:
            os.write(handle, line)
    finally:
        os.close(handle)
    if full:
        file.replace(file.with_name(f"{file.name}.1"))
        _append(file, line)

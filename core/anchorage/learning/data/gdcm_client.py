"""Frames decoded by GDCM in processes of their own, since it ends its process on some damaged frames (`gdcm_program`)."""

import atexit
import json
import os
import select
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from threading import Lock
from typing import Any

PATIENCE = 60.0
"""Seconds for one frame, and for the process to start; then it is damaged."""
_PROGRAM = Path(__file__).with_name("gdcm_program.py")

_idle: list[Popen[bytes]] = []
_lock = Lock()


def decode_by_gdcm(coded: bytes, expected: int, **request: Any) -> bytes:
    """Decode a frame.

    Parameters
    ----------
    coded : bytes
        The compressed frame.
    expected : int
        Bytes that its pixels have.
    **request
        What its header says: `rows`, `columns`, `samples`, `allocated`, `stored` (bits), `signed` (0 or 1), `photometric`, `syntax` (UID).

    Raises
    ------
    ValueError
        GDCM cannot decode it, or ended.
    """
    with _lock:
        process = _idle.pop() if _idle else None
    if process is None:
        process = Popen([sys.executable, str(_PROGRAM)], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, bufsize=0)
    assert process.stdin is not None and process.stdout is not None, "they are pipes"
    try:
        process.stdin.write(json.dumps({**request, "nbytes": len(coded)}).encode() + b"\n")
        _write(process.stdin.fileno(), coded)
        length = int.from_bytes(_read(process.stdout.fileno(), 8), "little")
        if length != expected:
            raise ValueError("another number of pixels than its header says")
        pixels = _read(process.stdout.fileno(), length)
    except (OSError, ValueError) as error:
        _end(process)
        raise ValueError("it cannot be decoded") from error
    except BaseException:
        _end(process)
        raise
    with _lock:
        _idle.append(process)
    return pixels


def _write(pipe: int, content: bytes) -> None:
    """Write bytes.

    Raises
    ------
    ValueError
        The process takes none for `PATIENCE` seconds.
    """
    remaining = memoryview(content)
    while remaining:
        _, ready, _ = select.select([], [pipe], [], PATIENCE)
        if not ready:
            raise ValueError("no answer")
        remaining = remaining[
            os.write(pipe, remaining[: select.PIPE_BUF]) :
        ]  # so much never waits where a pipe is ready


def _read(pipe: int, nbytes: int) -> bytes:
    """Read so many bytes.

    Raises
    ------
    ValueError
        The process ended, or says nothing for `PATIENCE` seconds.
    """
    parts = list[bytes]()
    while nbytes:
        ready, _, _ = select.select([pipe], [], [], PATIENCE)
        part = os.read(pipe, min(nbytes, 2**20)) if ready else b""
        if not part:
            raise ValueError("no answer")
        parts.append(part)
        nbytes -= len(part)
    return b"".join(parts)


def _end(process: "Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@atexit.register
def end_idle_processes() -> None:
    """End the processes that wait for frames."""
    with _lock:
        while _idle:
            _end(_idle.pop())

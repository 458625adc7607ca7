"""The files of the state folder that agent and trainer both map."""

import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError, silo
from anchorage.transport.messages import TaskKind

MODEL_FILES = {TaskKind.TRAIN: "model.bin", TaskKind.EVALUATE: "candidate.bin"}
UPDATE_FILE = "update.bin"


def reserve(path: Path, nbytes: int) -> NDArray[np.uint8]:
    """Map a file of exactly `nbytes`, writable and shared, with room on the disk for all of it; it keeps the bytes that it has.

    Raises
    ------
    AnchorageError
        The disk is full, or the file cannot be written.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(handle, nbytes)
            if nbytes and hasattr(
                os, "posix_fallocate"
            ):  # else a full disk would show as a bus error in the middle of a round
                os.posix_fallocate(handle, 0, nbytes)
        finally:
            os.close(handle)
        return attach(path, nbytes, writable=True)
    except OSError as error:
        raise unusable(path, error) from error


def attach(path: Path, nbytes: int, *, writable: bool) -> NDArray[np.uint8]:
    """Map a file that `reserve` made, uint8, shape [nbytes].

    Raises
    ------
    OSError
        The file cannot be opened.
    ValueError
        The file is shorter.
    """
    if nbytes == 0:
        return np.empty(0, np.uint8)
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    with path.open("r+b" if writable else "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), nbytes, access=access), np.uint8)


def unusable(path: Path, error: OSError) -> AnchorageError:
    """Return the failure for a file of the state folder that cannot be used."""
    return AnchorageError(silo.STATE_UNUSABLE, f"{path}: {error.strerror or error}")

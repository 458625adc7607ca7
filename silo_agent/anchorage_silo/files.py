"""Memory-mapped files of the state folder, shared by the agent and its trainer process."""

import mmap
import os
from pathlib import Path
from shutil import rmtree

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError, silo
from anchorage.api.regular_files import regular_opener
from anchorage.transport.messages import TaskKind

MODEL_FILES = {TaskKind.TRAIN: "model.bin", TaskKind.EVALUATE: "candidate.bin"}
UPDATE_FILE = "update.bin"
IMAGES_FILE = "images.json"
"""What the images were when training began."""
LEARNER_FOLDER = "learner"
"""What a learner keeps from round to round."""
PICTURES_FOLDER = "pictures"
"""Decoded images that are too many for memory."""
_TRAINER_FOLDER = "trainer"


def trainer_folder(state: Path) -> Path:
    """Return the folder that the trainer writes to, in the agent's state folder, where all else is the agent's alone."""
    return state / _TRAINER_FOLDER


def make_trainer_folder(state: Path) -> Path:
    """Make that folder, with the files of an agent that did not have one yet; return it.

    Raises
    ------
    AnchorageError
        The state folder is not writable.
    """
    folder = trainer_folder(state)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for name in (*MODEL_FILES.values(), UPDATE_FILE, IMAGES_FILE, LEARNER_FOLDER):
            if (state / name).exists():
                (state / name).replace(folder / name)
    except OSError as error:
        raise state_unusable(folder, error) from error
    return folder


def pictures_folder(state: Path) -> Path:
    """Return the folder of decoded images, in the agent's state folder."""
    return trainer_folder(state) / PICTURES_FOLDER


def forget_pictures(state: Path) -> int:
    """Remove the decoded images of an agent's state folder; return how many bytes they were.

    Raises
    ------
    AnchorageError
        They cannot be removed.
    """
    folder = pictures_folder(state)
    try:
        nbytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        rmtree(folder)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise state_unusable(folder, error) from error
    return nbytes


def map_allocated(path: Path, nbytes: int) -> NDArray[np.uint8]:
    """Map a file of exactly `nbytes` for writing, with its disk space allocated; existing content is kept.

    Raises
    ------
    AnchorageError
        The disk is full, or the file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(handle, nbytes)
            if nbytes and hasattr(
                os, "posix_fallocate"
            ):  # without it a full disk would raise SIGBUS in the middle of a round
                os.posix_fallocate(handle, 0, nbytes)
        finally:
            os.close(handle)
        return map_existing(path, nbytes, writable=True)
    except OSError as error:
        raise state_unusable(path, error) from error


def map_existing(path: Path, nbytes: int, *, writable: bool) -> NDArray[np.uint8]:
    """Map a file made by `map_allocated` as uint8, shape [nbytes].

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
    with open(path, "r+b" if writable else "rb", opener=regular_opener) as file:
        return np.frombuffer(mmap.mmap(file.fileno(), nbytes, access=access), np.uint8)


def state_unusable(path: Path, error: OSError) -> AnchorageError:
    """Return the failure for an unusable file of the state folder."""
    return AnchorageError(silo.STATE_UNUSABLE, f"{path}: {error.strerror or error}")

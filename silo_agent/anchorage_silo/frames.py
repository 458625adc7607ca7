"""What the agent and its trainer's process say to each other: frames of four bytes of length, one of kind, then the content.

The bytes of models and updates never pass here: they lie in files that both sides map.
"""

import json
import threading
from dataclasses import dataclass
from enum import Enum
from typing import IO, Any

LIMIT_BYTES = 256 << 20
"""Largest frame: a task with its auxiliary data (raw anchor embeddings) stays far below."""


class Kind(Enum):
    """What a frame holds; the value is its byte on the pipe."""

    SETUP = b"S"
    """To the trainer, first: `Setup`, JSON."""
    TASK = b"T"
    """To the trainer: `anchorage.transport.grpc.convert.encode_task`."""
    CANCEL = b"C"
    """To the trainer: stop the train task at its next step. Empty."""
    STEPS = b"N"
    """To the trainer: how many steps are committed, as far as the agent heard. 8 bytes, little-endian."""
    READY = b"R"
    """From the trainer: the images are read. JSON: ``samples``."""
    PROGRESS = b"P"
    """From the trainer: JSON: ``done``, ``total``."""
    ANNOUNCEMENT = b"A"
    """From the trainer: the update is whole. `anchorage.transport.grpc.convert.encode_announcement`."""
    EVALUATION = b"E"
    """From the trainer: `anchorage.transport.grpc.convert.encode_evaluation`."""
    FAILURE = b"F"
    """From the trainer: JSON: ``kind`` (of the task, or empty before READY), ``code``, ``message``."""
    CANCELLED = b"X"
    """From the trainer: the train task stopped as asked. Empty."""


@dataclass(frozen=True)
class Setup:
    """What a trainer's process is told before anything else.

    Parameters
    ----------
    silo, labels, device : str
        As configured.
    state, data_root : str
        Folders.
    run : str
        The run's description, JSON.
    down, up : str
        Layouts of the model and of an update, JSON.
    data, trainer : str
        Sections of the configuration, JSON.
    clip_norm, noise_std : float or None
        What the policy asks to be done to an update.
    noise_seed : int or None
        Seed of the noise; None draws from the operating system.
    """

    silo: str
    labels: str
    device: str
    state: str
    data_root: str
    run: str
    down: str
    up: str
    data: str
    trainer: str
    clip_norm: float | None = None
    noise_std: float | None = None
    noise_seed: int | None = None


class FrameWriter:
    """Writes frames from several threads."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, kind: Kind, content: bytes = b"") -> None:
        """Write one frame and flush it.

        Raises
        ------
        OSError
            The other process is gone.
        """
        with self._lock:
            self._stream.write(len(content).to_bytes(4, "little") + kind.value + content)
            self._stream.flush()

    def write_json(self, kind: Kind, /, **values: Any) -> None:
        """Write one frame that holds a JSON object."""
        self.write(kind, json.dumps(values).encode())


def read_frame(stream: IO[bytes]) -> tuple[Kind, bytes] | None:
    """Read one frame; None where the other process is gone, also in the middle of a frame.

    Raises
    ------
    ValueError
        What came is no frame.
    """
    head = stream.read(5)
    if len(head) < 5:
        return None
    length = int.from_bytes(head[:4], "little")
    if length > LIMIT_BYTES:
        raise ValueError(f"a frame of {length} bytes")
    content = stream.read(length)
    return (Kind(head[4:]), content) if len(content) == length else None

"""Messages between the agent and its trainer process: frames of a 4-byte length, a 1-byte kind and the content.

Models and updates do not pass through frames; they are in files that both processes map.
"""

import json
import threading
from dataclasses import dataclass
from enum import Enum
from typing import IO, Any

LIMIT_BYTES = 256 << 20
"""Maximum frame size; a task with its auxiliary data (raw anchor embeddings) is far smaller."""


class Kind(Enum):
    """Type of a frame; the value is its byte on the pipe."""

    SETUP = b"S"
    """To the trainer, as the first frame: `Setup` as JSON."""
    TASK = b"T"
    """To the trainer: `anchorage.transport.grpc.convert.encode_task`."""
    CANCEL = b"C"
    """To the trainer: stop the train task at its next step. No content."""
    STEPS = b"N"
    """To the trainer: number of steps committed in the federation, as last reported by the server. 8 bytes, little-endian."""
    READY = b"R"
    """From the trainer: the images are read. JSON with ``samples``."""
    PROGRESS = b"P"
    """From the trainer: progress in steps. JSON with ``done`` and ``total``."""
    ANNOUNCEMENT = b"A"
    """From the trainer: the update is complete. `anchorage.transport.grpc.convert.encode_announcement`."""
    EVALUATION = b"E"
    """From the trainer: `anchorage.transport.grpc.convert.encode_evaluation`."""
    FAILURE = b"F"
    """From the trainer: JSON with ``kind`` (of the task; empty before READY), ``code`` and ``message``."""
    CANCELLED = b"X"
    """From the trainer: the train task was cancelled. No content."""


@dataclass(frozen=True)
class Setup:
    """Settings of a trainer process, sent to it once at its start."""

    silo: str
    labels: str
    device: str
    state: str
    """The agent's state folder."""
    data_root: str
    """Folder below which a data section's ``claimName`` names a folder."""
    run: str
    """Description of the run, JSON."""
    down: str
    """Layout of the model, JSON."""
    up: str
    """Layout of an update, JSON."""
    data: str
    """Data section of the configuration, JSON; empty without one."""
    trainer: str
    """Trainer section of the configuration, JSON."""
    clip_norm: float | None = None
    """Maximum Euclidean norm of an update's change; None does not clip."""
    noise_std: float | None = None
    """Standard deviation of the noise added to an update; None adds none."""
    noise_ratio: float | None = None
    """Norm of the noise added to each array of an update, as a multiple of the norm of that array's change; None adds none."""
    noise_seed: int | None = None
    """Seed of the noise; None draws from the operating system."""
    system_metrics: bool = False
    """Whether announcements say what training used."""
    budgeted: bool = False
    """Whether updates are accounted to a privacy budget."""
    dp_sgd: tuple[float, float] | None = None
    """Maximum norm of one image's gradient, and the noise multiplier; None trains without DP-SGD."""
    store_pictures: bool = True
    """Whether decoded images that are too many for memory may be stored on disk."""
    devices: int = 1
    """Devices that train together, with a process each."""


class FrameWriter:
    """Writes frames; may be used by several threads."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, kind: Kind, content: bytes = b"") -> None:
        """Write one frame and flush it.

        Raises
        ------
        OSError
            The other process has ended.
        """
        with self._lock:
            self._stream.write(len(content).to_bytes(4, "little") + kind.value + content)
            self._stream.flush()

    def write_json(self, kind: Kind, /, **values: Any) -> None:
        """Write one frame with a JSON object as content."""
        self.write(kind, json.dumps(values).encode())


def read_frame(stream: IO[bytes]) -> tuple[Kind, bytes] | None:
    """Read one frame; None if the other process has ended, even in the middle of a frame.

    Raises
    ------
    ValueError
        The bytes are not a frame.
    """
    head = stream.read(5)
    if len(head) < 5:
        return None
    length = int.from_bytes(head[:4], "little")
    if length > LIMIT_BYTES:
        raise ValueError(f"a frame of {length} bytes")
    content = stream.read(length)
    return (Kind(head[4:]), content) if len(content) == length else None

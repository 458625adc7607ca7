"""Messages between the agent and its trainer process: frames of a 4-byte length, a 1-byte kind and the content.

Models and updates do not pass through frames; they are in files that both processes map.
"""

import json
import threading
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from anchorage_silo.files import trainer_folder
from anchorage_silo.protection import Protection

LIMIT_BYTES = 256 << 20
"""Maximum frame size; a task with its auxiliary data (raw anchor embeddings) is far smaller."""


class Kind(Enum):
    """Type of a frame; the value is its byte on the pipe."""

    SETUP = b"S"
    """To the trainer, as the first frame: `Setup.to_json`."""
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
    LOG = b"L"
    """From the trainer: a line for the agent's log. JSON with ``level`` (as of `logging`) and ``message``."""
    CANCELLED = b"X"
    """From the trainer: the train task was cancelled. No content."""
    QUESTION = b"Q"
    """To the process that asks pieces of other packages: `anchorage_silo.piece_process.pack`."""
    ANSWER = b"W"
    """From that process: `anchorage_silo.piece_process.pack`."""


@dataclass(frozen=True)
class Setup:
    """Documents from which a trainer process is set up, whole, sent to it once at its start."""

    config: str
    """The agent's configuration (`anchorage_silo.config.SiloConfig`), JSON."""
    policy: str
    """The hospital's policy (`anchorage_silo.policy.Policy`), JSON."""
    run: str
    """Description of the run, JSON."""
    protection: Protection = field(default_factory=Protection)
    """What policy and run together ask to be done to updates."""

    @classmethod
    def from_json(cls, content: bytes) -> "Setup":
        """Read what `to_json` wrote."""
        values = json.loads(content)
        return cls(**{**values, "protection": Protection(**values["protection"])})

    def to_json(self) -> bytes:
        """Return it as the content of a frame."""
        return json.dumps(asdict(self)).encode()

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The configuration as plain values, for what needs no pydantic."""
        values: dict[str, Any] = json.loads(self.config)
        return values

    @property
    def folder(self) -> Path:
        """The trainer's folder."""
        return trainer_folder(Path(self.plain["state"]))

    @property
    def trains(self) -> bool:
        """Whether there is a learner, which has images and devices; else a constant is added."""
        return bool(self.plain["trainer"]["type"] == "Learner")

    @property
    def devices(self) -> int:
        """Number of processes that train together."""
        return int(self.plain["devices"]) if self.trains else 1


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

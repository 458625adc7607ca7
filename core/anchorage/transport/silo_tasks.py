"""The server's record of one silo: its session, open tasks and uploads."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.messages import Task
from anchorage.transport.tensors.chunks import ChunkSink
from anchorage.transport.tensors.shortened import Shortened

if TYPE_CHECKING:
    from anchorage.transport.session import Session

STORAGE = 6
"""Exit code of failures of the server's disk."""


class Upload:
    """An update that is being received. After `close` nothing more is written into its sink."""

    def __init__(self, sink: ChunkSink) -> None:
        self.sink = sink
        self.is_complete = False
        self.permitted_in: Session | None = None
        self._open = True
        self._lock = threading.Lock()

    def check(self, task: str, digest: str) -> None:
        """Check that a silo is about to send the update that it announced.

        Raises
        ------
        AnchorageError
            Its layout, length or bytes are others.
        """
        expected = self.sink.manifest.digest
        if digest != expected:
            detail = f"task {task}: {digest[:12]} is not the announced update {expected[:12]}"
            raise AnchorageError(transfer.UNEXPECTED_UPDATE, detail)

    def write(self, task: str, index: int, data: bytes) -> None:
        """Store one chunk.

        Raises
        ------
        AnchorageError
            The upload was closed meanwhile, or the bytes are not the announced ones.
        """
        start, end = self.sink.manifest.span(index)
        shorter = len(data) < end - start and isinstance(self.sink, Shortened)
        if len(data) != end - start and not shorter:
            detail = f"chunk {index} has {end - start} bytes, {len(data)} came"
            raise AnchorageError(transfer.UNEXPECTED_UPDATE, f"task {task}: {detail}")
        with self._lock:
            if not self._open:
                raise unknown_task(task)
            self.sink.write(index, data)

    def close(self) -> None:
        """Stop writing; returns when a write in progress has ended."""
        with self._lock:
            self._open = False


@dataclass
class SiloTasks:
    """What the exchange knows about one silo, also while it is disconnected."""

    session: "Session | None" = None
    tasks: dict[str, Task] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)


def close_all(uploads: Sequence[Upload | None]) -> None:
    """Close the uploads among `uploads`."""
    for upload in uploads:
        if upload is not None:
            upload.close()


def unknown_task(task: str) -> AnchorageError:
    """Return the failure of a call about a task that the silo does not have."""
    gone = "it was replaced or dismissed, or may not be uploaded yet"
    return AnchorageError(transfer.UNKNOWN_TASK, f"the silo has no open task {task}: {gone}")

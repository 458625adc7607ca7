"""The silo's buffers as memory-mapped files: ``model.bin``, ``candidate.bin`` and ``update.bin``, which the trainer maps too.

The files are reused in every round and keep their size, so that their pages stay in the page cache. A restarted agent finds in them the received
model and the announced update.
"""

from functools import partial
from pathlib import Path

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.regular_files import read_regular
from anchorage.engine.buffers import ModelBuffer
from anchorage.transport.files import write_atomically
from anchorage.transport.grpc.convert import decode_announcement, encode_announcement
from anchorage.transport.messages import Announcement, TaskKind
from anchorage.transport.tensors.chunks import Manifest
from anchorage_silo.files import MODEL_FILES, UPDATE_FILE, map_allocated, state_unusable, trainer_folder
from anchorage_silo.shared_weights import SharedWeights, SharingBuffer

SEAL_BYTES = 32


class MappedBuffers:
    """Buffers in a folder (`anchorage.engine.buffers.Buffers`), for one process at a time.

    `terms` are the conditions under which updates are made (run, data, policy), in bytes. An update that was announced under other terms, or
    whose file is not as it was written, is not announced again. `shared` is a folder of frozen weights beside it, None for none.
    """

    def __init__(self, folder: Path, terms: bytes = b"", shared: Path | None = None) -> None:
        self._folder = folder
        self._terms = terms
        self._shared = None if shared is None else SharedWeights(shared)
        self._models = {kind: self._model(name) for kind, name in MODEL_FILES.items()}
        self._update = np.empty(0, np.uint8)
        self._announced = folder / "announced.bin"

    def _model(self, name: str) -> ModelBuffer:
        allocate = partial(map_allocated, trainer_folder(self._folder) / name)
        return ModelBuffer(allocate) if self._shared is None else SharingBuffer(allocate, self._shared)

    def model(self, kind: TaskKind) -> ModelBuffer:
        """Return the buffer for the model of a task of this kind."""
        return self._models[kind]

    def update(self, nbytes: int) -> NDArray[np.uint8]:
        """Return the writable buffer of the update, uint8, shape [nbytes].

        Raises
        ------
        AnchorageError
            The disk is full.
        """
        if self._update.nbytes != nbytes:
            self._update = map_allocated(trainer_folder(self._folder) / UPDATE_FILE, nbytes)
        return self._update

    def keep(self, announcement: Announcement | None) -> None:
        """Store the announcement of the update in the buffer, or remove it (None) before the buffer changes.

        Raises
        ------
        AnchorageError
            The folder is full or not writable.
        """
        try:
            if announcement is None:
                self._announced.unlink(missing_ok=True)
                return
            content = encode_announcement(announcement)
            write_atomically(self._announced, self._seal(content) + content)
        except OSError as error:
            raise state_unusable(self._announced, error) from error

    def find_announcement(self, task: str) -> Announcement | None:
        """Return the stored announcement of a task if its update is still complete in the file, else None."""
        try:
            sealed = read_regular(self._announced)
            seal, content = sealed[:SEAL_BYTES], sealed[SEAL_BYTES:]
            if seal != self._seal(content):
                return None
            announcement = decode_announcement(content)
        except (OSError, AnchorageError):
            return None
        update = announcement.update
        if announcement.task != task:
            return None
        is_complete = update is None or Manifest.of(update.layout, self.update(update.nbytes)) == update
        return announcement if is_complete else None

    def _seal(self, content: bytes) -> bytes:
        """Return what stands before an announcement on disk: a digest of it and of the terms."""
        return blake3(self._terms).update(content).digest()

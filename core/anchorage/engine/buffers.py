"""Where a silo keeps the bytes that it receives and those that it will send: buffers that are used again in every round."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.messages import Announcement, TaskKind
from anchorage.transport.tensors.chunks import Manifest, chunk_digest, chunk_digests
from anchorage.transport.tensors.spool import check_chunk


class ModelBuffer:
    """Receives models, one after another (`ChunkSink`); a chunk that the buffer holds already is not missing.

    Parameters
    ----------
    allocate : callable
        ``allocate(nbytes)`` returns a writable uint8 array of shape [nbytes]; what it holds is looked at once, so that a model received
        before a restart is not fetched again.
    """

    def __init__(self, allocate: Callable[[int], NDArray[np.uint8]]) -> None:
        self._allocate = allocate
        self._array = np.empty(0, np.uint8)
        self._held: list[bytes] = []
        self._manifest = Manifest("", 0, ())

    @property
    def manifest(self) -> Manifest:
        """What is being received."""
        return self._manifest

    @property
    def array(self) -> NDArray[np.uint8]:
        """The bytes, read-only, shape [nbytes]."""
        view = self._array.view()
        view.flags.writeable = False
        return view

    def receive(self, manifest: Manifest) -> None:
        """Make the buffer ready for a model.

        Raises
        ------
        AnchorageError
            There is no room for it.
        """
        if manifest.nbytes != self._array.nbytes:
            self._array = self._allocate(manifest.nbytes)
        elif manifest.front == self._manifest.front:
            self._manifest = manifest
            return
        self._held = list(chunk_digests(self._array, manifest.front))
        self._manifest = manifest

    def missing(self) -> tuple[int, ...]:
        """Return the indices of the chunks that have not arrived, ascending."""
        pairs = zip(self._held, self._manifest.digests, strict=True)
        return tuple(i for i, (held, wanted) in enumerate(pairs) if held != wanted)

    def borrow(self, other: "ModelBuffer") -> None:
        """Copy frozen tensors that another buffer holds and this one lacks, so that they do not travel again."""
        fixed = self._manifest.fixed
        if other is not self and fixed and other.manifest.fixed == fixed:
            source = BufferSource(other.manifest, other.array)
            for index in self.missing():
                if index < len(fixed) and chunk_digest(data := source.chunk(index)) == fixed[index]:
                    self.write(index, data)

    def write(self, index: int, data: bytes) -> None:
        """Check one chunk against its digest and keep it.

        Raises
        ------
        AnchorageError
            The bytes are not the ones that the manifest names.
        """
        check_chunk(self._manifest, index, data)
        start, stop = self._manifest.span(index)
        self._held[index] = b""
        self._array[start:stop] = np.frombuffer(data, np.uint8)
        self._held[index] = self._manifest.digests[index]


class BufferSource:
    """An update in a buffer, as a `ChunkSource`; `array` is uint8, shape [nbytes], and stays as it is while it is read."""

    def __init__(self, manifest: Manifest, array: NDArray[np.uint8]) -> None:
        self.manifest = manifest
        self._bytes = array.data

    def chunk(self, index: int) -> bytes:
        """Return one chunk."""
        start, stop = self.manifest.span(index)
        return bytes(self._bytes[start:stop])


class Buffers(Protocol):
    """A silo's buffers. Implementations: `MemoryBuffers` and the agent's mapped files."""

    def model(self, kind: TaskKind) -> ModelBuffer:
        """Return the buffer for the model of a task of this kind; there are two, for a silo evaluates while it trains."""

    def update(self, nbytes: int) -> NDArray[np.uint8]:
        """Return the writable buffer of the update, uint8, shape [nbytes].

        Raises
        ------
        AnchorageError
            There is no room for it.
        """

    def keep(self, announcement: Announcement | None) -> None:
        """Remember what was announced about the bytes in the update's buffer; None before they change.

        Raises
        ------
        AnchorageError
            It cannot be written down.
        """

    def find_announcement(self, task: str) -> Announcement | None:
        """Return what was announced for a task, where its update is still whole in the buffer."""


class MemoryBuffers:
    """Buffers in memory.

    Parameters
    ----------
    model : ModelBuffer, optional
        The buffer of models to train on; silos that work one after another may share one.
    """

    def __init__(self, model: ModelBuffer | None = None) -> None:
        self._models = {TaskKind.TRAIN: model or ModelBuffer(_memory), TaskKind.EVALUATE: ModelBuffer(_memory)}
        self._update = _memory(0)
        self._last_announcement: Announcement | None = None

    def model(self, kind: TaskKind) -> ModelBuffer:
        """Return the buffer for the model of a task of this kind."""
        return self._models[kind]

    def update(self, nbytes: int) -> NDArray[np.uint8]:
        """Return the writable buffer of the update, uint8, shape [nbytes]."""
        if self._update.nbytes != nbytes:
            self._update = _memory(nbytes)
        return self._update

    def keep(self, announcement: Announcement | None) -> None:
        """Remember what was announced about the bytes in the update's buffer; None before they change."""
        self._last_announcement = announcement

    def find_announcement(self, task: str) -> Announcement | None:
        """Return what was announced for a task, where its update is still whole in the buffer."""
        return (
            self._last_announcement
            if self._last_announcement is not None and self._last_announcement.task == task
            else None
        )


def _memory(nbytes: int) -> NDArray[np.uint8]:
    return np.zeros(nbytes, np.uint8)

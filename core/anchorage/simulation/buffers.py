"""Buffers of silos that work one after another in one process: one model is held for all of them, and updates change hands without a copy."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.buffers import MemoryBuffers, ModelBuffer
from anchorage.engine.store import SpareUpdates
from anchorage.transport.messages import TaskKind
from anchorage.transport.tensors.chunks import ChunkSource, Manifest


class WorkingModel:
    """The bytes of the model that one of the silos works on, and the digests of its chunks."""

    def __init__(self) -> None:
        self.array = np.empty(0, np.uint8)
        self.held: list[bytes] = []
        self._front = 0

    def put(self, manifest: Manifest, index: int, data: bytes) -> None:
        """Keep a chunk, unless it is here already."""
        if (self.array.nbytes, self._front) != (manifest.nbytes, manifest.front):
            self.array, self._front = np.empty(manifest.nbytes, np.uint8), manifest.front
            self.held = [b""] * len(manifest.digests)
        if self.held[index] != manifest.digests[index]:
            start, stop = manifest.span(index)
            self.array[start:stop] = np.frombuffer(data, np.uint8)
            self.held[index] = manifest.digests[index]


class SiloModel(ModelBuffer):
    """A silo's view of the working model: it remembers the digests of what this silo was sent last, not the bytes.

    So a silo is sent the same chunks as over a network, while all silos have one buffer.

    Parameters
    ----------
    working : WorkingModel
        What all silos have in common.
    source : callable
        Returns the model that a manifest names, of an open task of this silo.
    """

    def __init__(self, working: WorkingModel, source: Callable[[Manifest], ChunkSource]) -> None:
        super().__init__(lambda nbytes: np.empty(nbytes, np.uint8))
        self._working = working
        self._source = source

    @property
    def array(self) -> NDArray[np.uint8]:
        """The bytes, read-only, shape [nbytes]; until another silo receives a model."""
        manifest, working = self._manifest, self._working
        if working.array.nbytes != manifest.nbytes or working.held != list(manifest.digests):
            source = self._source(manifest)
            for index in range(len(manifest.digests)):
                working.put(manifest, index, source.chunk(index))
        view = working.array.view()
        view.flags.writeable = False
        return view

    def receive(self, manifest: Manifest) -> None:
        """Make the buffer ready for a model."""
        if (manifest.nbytes, manifest.front) != (self._manifest.nbytes, self._manifest.front):
            self._held = [b""] * len(manifest.digests)
        self._manifest = manifest

    def borrow(self, other: ModelBuffer) -> None:
        """Note frozen tensors that the silo was sent with another model; see `ModelBuffer.borrow`."""
        fixed = self._manifest.fixed
        if isinstance(other, SiloModel) and other.manifest.fixed == fixed:
            self._held[: len(fixed)] = other._held[: len(fixed)]

    def write(self, index: int, data: bytes) -> None:
        """Note that a chunk was received; the bytes are fetched from where they lie when they are needed."""
        self._held[index] = self._manifest.digests[index]


class SiloBuffers(MemoryBuffers):
    """One silo's buffers, with the memory of all.

    Parameters
    ----------
    working : mapping of TaskKind to WorkingModel
        The models that all silos have in common.
    spare : SpareUpdates
        Memory of updates.
    source : callable
        As in `SiloModel`.
    """

    def __init__(
        self, working: Mapping[TaskKind, WorkingModel], spare: SpareUpdates, source: Callable[[Manifest], ChunkSource]
    ) -> None:
        super().__init__()
        self._models = {kind: SiloModel(model, source) for kind, model in working.items()}
        self._spare = spare
        self._update_memory: NDArray[np.uint8] | None = None

    def update(self, nbytes: int) -> NDArray[np.uint8]:
        """Return the writable buffer of the update, uint8, shape [nbytes]."""
        if self._update_memory is None or self._update_memory.nbytes != nbytes:
            self._update_memory = self._spare.take(nbytes)
        return self._update_memory

    def hand_over(self) -> NDArray[np.uint8] | None:
        """Give the update away, uint8, shape [nbytes]: the next one is written elsewhere. None where there is none."""
        buffer, self._update_memory, self._last_announcement = self._update_memory, None, None
        return buffer

    def forget(self, task: str) -> None:
        """Let go of an update that will not be asked for any more."""
        if self.find_announcement(task) is not None:
            self._spare.give(self.hand_over())

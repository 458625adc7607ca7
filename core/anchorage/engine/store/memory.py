"""The round store in memory, and updates that change hands there without a copy."""

import os
from collections.abc import Mapping
from mmap import mmap
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.interfaces import Checkpoint, RoundRecord
from anchorage.engine.store.durable import storage_errors
from anchorage.engine.store.large_files import HeldLarge
from anchorage.engine.store.round_store import RoundStore
from anchorage.engine.store.updates import Slot, Updates
from anchorage.transport.memory import available_bytes
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import MemorySpool


class SpareUpdates:
    """Memory of updates that were counted, to be written over: fresh memory would cost as much as the training of a null trainer.

    Parameters
    ----------
    folder : Path, optional
        Where updates lie beyond `most_bytes`, in files without a name, which the kernel may write to the disk when it needs their memory: so
        a round of more silos than fit in memory is slow, not killed. Without it all are in memory.
    most_bytes : int, optional
        How many bytes of updates are in memory alone; unless given, a quarter of those that are free.
    """

    def __init__(self, folder: Path | None = None, most_bytes: int | None = None) -> None:
        self._folder = folder
        if most_bytes is None:
            most_bytes = available_bytes() // 4 if folder else 0
        self._room = most_bytes
        self._spare: list[NDArray[np.uint8]] = []
        self._lock = Lock()

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """Return a writable buffer, uint8, shape [nbytes], of any content.

        Raises
        ------
        AnchorageError
            The disk has no room for it.
        """
        with self._lock:
            if self._spare and self._spare[-1].nbytes != nbytes:
                self._room += sum(buffer.nbytes for buffer in self._spare if buffer.base is None)  # others are files
                self._spare.clear()
            if self._spare:
                return self._spare.pop()
            if self._folder is None or self._room >= nbytes:
                self._room -= nbytes
                return np.empty(nbytes, np.uint8)
        return _on_disk(self._folder, nbytes)

    def give(self, buffer: NDArray[np.uint8] | None) -> None:
        """Take back a buffer that nobody reads any more."""
        if buffer is not None:
            with self._lock:
                self._spare.append(buffer)


def _on_disk(folder: Path, nbytes: int) -> NDArray[np.uint8]:
    with storage_errors("make room for an update", folder), TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, nbytes)  # on a full disk, a write to mapped memory would end the process
        return np.frombuffer(mmap(file.fileno(), nbytes), np.uint8)


class HeldUpdate(MemorySpool):
    """An update in memory that may be handed over whole.

    Parameters
    ----------
    manifest : Manifest
        What will arrive.
    """

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._buffer: NDArray[np.uint8] | None = None

    def adopt(self, buffer: NDArray[np.uint8]) -> None:
        """Take the announced bytes, uint8, shape [nbytes]; their former owner leaves them alone. Chunks are views, which read like bytes."""
        self._buffer = buffer
        spans = map(self.manifest.span, range(self.manifest.count))
        self._chunks = {index: cast(bytes, buffer.data[start:stop]) for index, (start, stop) in enumerate(spans)}

    def release(self) -> NDArray[np.uint8] | None:
        """Return the memory that was handed over, if any; the update is gone."""
        self._chunks = {}
        buffer, self._buffer = self._buffer, None
        return buffer


class HeldUpdates(Updates[HeldUpdate]):
    """Updates in memory: they survive an engine, not a process.

    Parameters
    ----------
    spare : SpareUpdates, optional
        Gets the memory of updates that are not needed any more.
    """

    def __init__(self, spare: SpareUpdates | None = None) -> None:
        super().__init__()
        self._spare = spare or SpareUpdates()

    def _make(self, silo: str, manifest: Manifest) -> tuple[int, HeldUpdate]:
        return 0, HeldUpdate(manifest)

    def _file(self, slot: Slot[HeldUpdate]) -> HeldUpdate:
        assert slot.file is not None, "nothing is left by an earlier process"
        return slot.file

    def _recycle(self, slot: Slot[HeldUpdate]) -> None:
        self._spare.give(self._file(slot).release())


class MemoryStore(RoundStore):
    """A store that survives an engine, not a process.

    Parameters
    ----------
    spare : SpareUpdates, optional
        As in `HeldUpdates`.
    first : int
        The first round that may be the best one.
    """

    def __init__(self, spare: SpareUpdates | None = None, first: int = 0) -> None:
        super().__init__(HeldUpdates(spare), HeldLarge(), first)
        self._latest: Checkpoint | None = None
        self._best_checkpoint: Checkpoint | None = None

    def latest(self) -> Checkpoint | None:
        """Return the last committed round, None in a new run."""
        return self._latest

    def best(self) -> Checkpoint | None:
        """Return the best committed round; the last one where no round has a metric to go by."""
        return self._best_checkpoint or self._latest

    def commit(self, record: RoundRecord, model: ModelBytes, state: Mapping[str, NDArray[Any]]) -> None:
        """Keep a round."""
        self._latest = Checkpoint(record, model, dict(state))
        if self.excels(record.round, record.metrics):
            self._best_checkpoint = self._latest
        self._count(record)
        self._updates.settle()

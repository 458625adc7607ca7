"""What a method keeps that is too large for a checkpoint, such as FedMix's pool of images: files at the server, in memory for tests."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import CHECKPOINT_DAMAGED
from anchorage.engine.store.durable import storage_errors
from anchorage.transport.files import replacing, sync
from anchorage.transport.tensors.chunks import CHUNK_BYTES, ChunkSource, Manifest, chunk_digest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import SpoolFile

Source = TypeVar("Source", bound=ChunkSource)


class LargeFiles(ABC, Generic[Source]):
    """Keeps the newest two buffers of every slot: that of the last checkpoint, and the one that the next checkpoint names."""

    def __init__(self) -> None:
        self._sources: dict[str, list[Source]] = {}

    def write(self, slot: str, layout: Layout, pieces: Iterable[tuple[int, bytes]]) -> ChunkSource:
        """Keep a buffer.

        Parameters
        ----------
        slot : str
            Slot of the method whose piece keeps it.
        layout : Layout
            What the bytes mean.
        pieces : iterable of tuple of int and bytes
            Where each piece begins, and the piece; together the whole buffer, in any order. They are taken one by one.

        Raises
        ------
        AnchorageError
            The disk is full or failed.
        """
        return self._keep(slot, self._write(slot, layout, pieces))

    def read(self, slot: str, manifest: Manifest) -> ChunkSource:
        """Return a buffer that was kept.

        Raises
        ------
        AnchorageError
            It is not as it was written.
        """
        for source in self._sources.get(slot, []):
            if source.manifest == manifest:
                return source
        return self._keep(slot, self._read(slot, manifest))

    def close(self) -> None:
        """Let go of every file."""
        for sources in self._sources.values():
            while sources:
                self._let_go(sources.pop())

    def _keep(self, slot: str, new: Source) -> Source:
        sources = self._sources.setdefault(slot, [])
        sources.append(new)
        while len(sources) > 2:
            self._let_go(sources.pop(0))
        return new

    @abstractmethod
    def _write(self, slot: str, layout: Layout, pieces: Iterable[tuple[int, bytes]]) -> Source:
        """Write a buffer, durably where it outlives the process."""

    @abstractmethod
    def _read(self, slot: str, manifest: Manifest) -> Source:
        """Return a buffer that an earlier process left."""

    def _let_go(self, source: Source) -> None:
        """Close a buffer that is not read any more."""


class HeldLarge(LargeFiles[ModelBytes]):
    """Large data in memory."""

    def _write(self, slot: str, layout: Layout, pieces: Iterable[tuple[int, bytes]]) -> ModelBytes:
        buffer = np.empty(layout.nbytes, np.uint8)
        for begin, data in pieces:
            buffer[begin : begin + len(data)] = np.frombuffer(data, np.uint8)
        return ModelBytes.of(layout, buffer)

    def _read(self, slot: str, manifest: Manifest) -> ModelBytes:
        raise AnchorageError(CHECKPOINT_DAMAGED, f"the {slot} of a checkpoint was in the memory of another process")


class LargeFolder(LargeFiles[SpoolFile]):
    """Large data in a folder, a file each: ``input_mixing-DIGEST.bin``.

    Parameters
    ----------
    folder : Path
        Must belong to this process alone; made when something is kept.
    sync : bool
        Whether a file is on disk when `write` returns.
    """

    def __init__(self, folder: Path, *, sync: bool = True) -> None:
        super().__init__()
        self._folder, self._sync = folder, sync

    def _write(self, slot: str, layout: Layout, pieces: Iterable[tuple[int, bytes]]) -> SpoolFile:
        with storage_errors(f"keep the {slot}", self._folder):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with replacing(self._folder / f"{slot}.new", durable=self._sync) as partial:
                digests = _write_pieces(partial, layout.nbytes, pieces)
            manifest = Manifest(layout.digest, layout.nbytes, digests)
            (self._folder / f"{slot}.new").replace(self._path(slot, manifest))
            if self._sync:
                sync(self._folder)
            last = self._sources.get(slot, [])[-1:]
            self._remove_others({manifest.digest, *(source.manifest.digest for source in last)}, slot)
        return self._read(slot, manifest)

    def _read(self, slot: str, manifest: Manifest) -> SpoolFile:
        path = self._path(slot, manifest)
        if not path.exists():
            raise AnchorageError(CHECKPOINT_DAMAGED, f"{path}, which a checkpoint names, is missing; restore it")
        with storage_errors(f"read the {slot}", self._folder):
            file = SpoolFile.recover(path, manifest)
        if file.missing():
            file.close()
            raise AnchorageError(CHECKPOINT_DAMAGED, f"{path}: its bytes are not those that were written; restore it")
        return file

    def _let_go(self, source: SpoolFile) -> None:
        source.close()

    def _remove_others(self, digests: set[str], slot: str) -> None:
        for path in self._folder.glob(f"{slot}-*.bin"):
            if path.stem.removeprefix(f"{slot}-") not in digests:
                path.unlink()

    def _path(self, slot: str, manifest: Manifest) -> Path:
        return self._folder / f"{slot}-{manifest.digest}.bin"


def _write_pieces(path: Path, nbytes: int, pieces: Iterable[tuple[int, bytes]]) -> tuple[bytes, ...]:
    """Write a file of so many bytes, mode 0600, and return the digests of its chunks."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b", buffering=0):
        if nbytes:
            os.posix_fallocate(handle, 0, nbytes)
        for begin, data in pieces:
            rest = memoryview(data)
            while rest:
                rest = rest[os.pwrite(handle, rest, begin + len(data) - len(rest)) :]
        starts = range(0, nbytes, CHUNK_BYTES)
        return tuple(chunk_digest(os.pread(handle, CHUNK_BYTES, start)) for start in starts)

"""Frozen weights that the agents of one hospital share: a folder of chunks by their digests, so that each comes once for several federations."""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchorage.api.regular_files import read_regular
from anchorage.engine.buffers import ModelBuffer
from anchorage.transport.files import replacing
from anchorage.transport.tensors.chunks import Manifest, chunk_digest

MOST_BYTES = 32 << 30
"""Bytes in the folder; of agents that make room at the same time each may add its frozen weights beyond that."""

_log = logging.getLogger(__name__)


class SharedWeights:
    """The folder, for any number of processes. What it does not give is fetched as without it: trouble with it is logged and stops nothing.

    Every chunk is a file of its digest's name, which appears whole (renamed) and is checked when it is read; the longest unused ones make room.

    Parameters
    ----------
    folder : Path
        Made if it is missing.
    most_bytes : int
        Bytes that it may hold.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._usable = True
        self._try(lambda: folder.mkdir(parents=True, exist_ok=True))

    def read(self, digest: bytes, nbytes: int) -> bytes | None:
        """Return a chunk of so many bytes; None where it is not there. One that is damaged is removed."""
        path = self._folder / digest.hex()
        try:
            data = read_regular(path) if path.stat().st_size == nbytes else b""
        except OSError:  # missing, or removed by another agent
            return None
        if chunk_digest(data) != digest:
            self._try(lambda: path.unlink(missing_ok=True))
            return None
        with suppress(OSError):  # a folder that is only read is not ordered by use
            os.utime(path)
        return data

    def keep(self, digest: bytes, data: bytes) -> None:
        """Store a chunk that was checked."""
        path = self._folder / digest.hex()

        def write() -> None:
            with replacing(path, shared=True) as partial:
                partial.write_bytes(data)

        if self._usable and not path.exists():
            self._try(write)

    def make_room(self, nbytes: int) -> bool:
        """Remove what was not used for longest until so many bytes fit; return whether they do."""
        return self._usable and nbytes <= self._most_bytes and self._try(lambda: self._remove_beyond(nbytes))

    def _remove_beyond(self, nbytes: int) -> None:
        chunk_files = []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                facts = path.stat()
                chunk_files.append((facts.st_mtime, facts.st_size, path))
        held = sum(size for _, size, _ in chunk_files)
        for _, size, path in sorted(chunk_files):
            if held + nbytes <= self._most_bytes:
                break
            path.unlink(missing_ok=True)
            held -= size

    def _try(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except OSError as error:
            self._usable = False
            _log.warning("frozen weights are not shared in %s from now on: %s", self._folder, error.strerror)
        return self._usable


class SharingBuffer(ModelBuffer):
    """A buffer of models whose frozen tensors are taken from a shared folder where it has them, and put there where not.

    Parameters
    ----------
    allocate : callable
        As of `ModelBuffer`.
    shared : SharedWeights
        The folder.
    """

    def __init__(self, allocate: Callable[[int], NDArray[np.uint8]], shared: SharedWeights) -> None:
        super().__init__(allocate)
        self._shared, self._gives = shared, False

    def receive(self, manifest: Manifest) -> None:
        """Make the buffer ready for a model, with the frozen tensors that the folder has. Raises as that of `ModelBuffer`."""
        super().receive(manifest)
        self._gives = False
        wanted = [index for index in self.missing() if index < len(manifest.fixed)]
        for index in wanted:
            start, stop = manifest.span(index)
            if (data := self._shared.read(manifest.digests[index], stop - start)) is not None:
                self.write(index, data)
        lacking = [index for index in self.missing() if index < len(manifest.fixed)]
        if wanted:
            shared_count = len(wanted) - len(lacking)
            _log.info("%d of %d chunks of frozen weights were in the shared folder", shared_count, len(wanted))
        self._gives = bool(lacking) and self._shared.make_room(manifest.front)

    def write(self, index: int, data: bytes) -> None:
        """Check one chunk against its digest, keep it, and share it if it is frozen. Raises as that of `ModelBuffer`."""
        super().write(index, data)
        if self._gives and index < len(self.manifest.fixed):
            self._shared.keep(self.manifest.digests[index], bytes(data))

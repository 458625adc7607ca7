"""Receives a model chunk by chunk, in a file or in memory: a `ChunkSink` while incomplete, a `ChunkSource` once complete."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import DISK_FULL, STORAGE_FAILED
from anchorage.api.errors.transfer import CHUNK_MISMATCH, UNKNOWN_TASK
from anchorage.transport.tensors.chunks import Manifest, chunk_digest


class MemorySpool:
    """A model received in memory.

    Parameters
    ----------
    manifest : Manifest
        What will arrive.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._chunks: dict[int, bytes] = {}

    def missing(self) -> tuple[int, ...]:
        """Return the indices that have not arrived, ascending."""
        return tuple(index for index in range(self.manifest.count) if index not in self._chunks)

    def write(self, index: int, data: bytes) -> None:
        """Check one chunk against its digest and keep it.

        Raises
        ------
        AnchorageError
            The bytes are not the ones that the manifest names.
        """
        check_chunk(self.manifest, index, data)
        self._chunks[index] = bytes(data)

    def chunk(self, index: int) -> bytes:
        """Return one chunk that has arrived."""
        return self._chunks[index]


class SpoolFile:
    """A model received in a file, which may be reused from another model. Thread-safe.

    Parameters
    ----------
    path : Path
        The file; made if there is none, mode 0600. What it holds counts as missing.
    manifest : Manifest
        What will arrive.

    Raises
    ------
    OSError
        The file cannot be opened, or there is no room for the model.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._idle = threading.Condition()
        self._users = 0
        self._open = True
        self._missing = set(range(len(manifest.digests)))
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(self._handle).st_size < manifest.nbytes:
                os.posix_fallocate(self._handle, 0, manifest.nbytes)
        except OSError:
            os.close(self._handle)
            raise

    @classmethod
    def recover(cls, path: Path, manifest: Manifest) -> "SpoolFile":
        """Open a file of an earlier process: chunks with the right digest count as received.

        Raises
        ------
        OSError
            As the constructor.
        AnchorageError
            The file cannot be read.
        """
        spool = cls(path, manifest)
        spool._missing = {i for i, digest in enumerate(manifest.digests) if chunk_digest(spool.chunk(i)) != digest}
        return spool

    def missing(self) -> tuple[int, ...]:
        """Return the indices that have not arrived, ascending."""
        with self._idle:
            return tuple(sorted(self._missing))

    def write(self, index: int, data: bytes) -> None:
        """Check one chunk against its digest and write it.

        Raises
        ------
        AnchorageError
            The bytes are not the ones that the manifest names, the disk failed, or the spool is closed.
        """
        check_chunk(self.manifest, index, data)
        start, stop = self.manifest.span(index)
        with self._in_use():
            while start < stop:
                start += os.pwrite(self._handle, memoryview(data)[start - stop :], start)
        with self._idle:
            self._missing.discard(index)

    def chunk(self, index: int) -> bytes:
        """Read one chunk.

        Raises
        ------
        AnchorageError
            The disk failed, or the spool is closed.
        """
        start, stop = self.manifest.span(index)
        with self._in_use():
            data = os.pread(self._handle, stop - start, start)
            if len(data) < stop - start:
                raise OSError(errno.EIO, "the file is shorter than the model")
        return data

    def close(self) -> None:
        """Close the file once no thread uses it; later calls fail."""
        with self._idle:
            was_open, self._open = self._open, False
            self._idle.wait_for(lambda: self._users == 0)
            if was_open:
                os.close(self._handle)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Hold the file open; the file system's errors become the catalogue's."""
        with self._idle:
            if not self._open:
                raise AnchorageError(UNKNOWN_TASK, f"{self.path.name} does not take this update any more")
            self._users += 1
        try:
            yield
        except OSError as error:
            kind = DISK_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else STORAGE_FAILED
            raise AnchorageError(kind, f"{self.path}: {error.strerror}") from error
        finally:
            with self._idle:
                self._users -= 1
                self._idle.notify_all()


def check_chunk(manifest: Manifest, index: int, data: bytes) -> None:
    """Check bytes against the digest in a manifest.

    Raises
    ------
    AnchorageError
        They are not, or the manifest has no such chunk.
    """
    if not 0 <= index < len(manifest.digests):
        raise AnchorageError(CHUNK_MISMATCH, f"chunk {index} of a model of {len(manifest.digests)} chunks")
    start, stop = manifest.span(index)
    if len(data) != stop - start or chunk_digest(data) != manifest.digests[index]:
        message = (
            f"chunk {index} of {manifest.digest[:16]}: {len(data)} bytes that are not the announced {stop - start}"
        )
        raise AnchorageError(CHUNK_MISMATCH, message)

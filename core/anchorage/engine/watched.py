"""What a task sends and receives, which stops when it is withdrawn."""

from collections.abc import Callable

from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest


class WatchedSink:
    """A model's sink that stops when the task is withdrawn."""

    def __init__(self, check: Callable[[], None], sink: ChunkSink) -> None:
        self._check = check
        self._sink = sink

    @property
    def manifest(self) -> Manifest:
        """What travels."""
        return self._sink.manifest

    def missing(self) -> tuple[int, ...]:
        """Return the chunks that have not arrived."""
        self._check()
        return self._sink.missing()

    def write(self, index: int, data: bytes) -> None:
        """Keep a chunk."""
        self._check()
        self._sink.write(index, data)


class WatchedSource:
    """An update that stops to be readable when the task is withdrawn."""

    def __init__(self, check: Callable[[], None], source: ChunkSource) -> None:
        self._check = check
        self._source = source

    @property
    def manifest(self) -> Manifest:
        """What travels."""
        return self._source.manifest

    def chunk(self, index: int) -> bytes:
        """Return a chunk."""
        self._check()
        return self._source.chunk(index)

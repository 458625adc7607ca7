"""A model composed of byte ranges of other models, read on demand."""

from collections.abc import Iterable
from dataclasses import dataclass

from anchorage.transport.tensors.chunks import CHUNK_BYTES, ChunkSource, Manifest, chunk_digest
from anchorage.transport.tensors.layout import Layout


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes `start` to `stop` (exclusive) of a source."""

    source: ChunkSource
    start: int
    stop: int

    def read(self, start: int, stop: int) -> Iterable[bytes]:
        """Yield the stretch's bytes `start` to `stop`, counted from its own beginning."""
        at, end = self.start + start, self.start + stop
        while at < end:
            index, offset = divmod(at, CHUNK_BYTES)
            piece = self.source.chunk(index)[offset : offset + end - at]
            at += len(piece)
            yield piece


class JoinedSource:
    """Stretches one behind the other (`ChunkSource`). Nothing is held but the digests, which one pass over the bytes makes.

    Parameters
    ----------
    layout : str
        Digest of the layout that gives the bytes, or the first of them, their meaning.
    stretches : iterable of Stretch
        In order; their sources must stay readable.
    """

    def __init__(self, layout: str, stretches: Iterable[Stretch]) -> None:
        self._parts: list[tuple[int, Stretch]] = []
        end = 0
        for stretch in stretches:
            self._parts.append((end, stretch))
            end += stretch.stop - stretch.start
        self._nbytes = end
        digests = tuple(chunk_digest(self.chunk(index)) for index in range(-(-end // CHUNK_BYTES)))
        self.manifest = Manifest(layout, end, digests)

    def chunk(self, index: int) -> bytes:
        """Return one chunk."""
        start = index * CHUNK_BYTES
        stop = min(start + CHUNK_BYTES, self._nbytes)
        pieces: list[bytes] = []
        for begin, part in self._parts:
            first, last = max(start, begin), min(stop, begin + part.stop - part.start)
            if first < last:
                pieces.extend(part.read(first - begin, last - begin))
        return b"".join(pieces)


def models_in(source: ChunkSource, layout: Layout) -> list[ChunkSource]:
    """Return the models of one layout that lie one behind the other in a source; the source itself where it is one model."""
    size, total = layout.nbytes, source.manifest.nbytes
    return [part_of(source, start, start + size) for start in range(0, total, size)]


def part_of(source: ChunkSource, start: int, stop: int) -> ChunkSource:
    """Return the bytes `start` to `stop` (exclusive) of a source, of a layout that its manifest names; the source itself where they are all."""
    if (start, stop) == (0, source.manifest.nbytes):
        return source
    return JoinedSource(source.manifest.layout, [Stretch(source, start, stop)])

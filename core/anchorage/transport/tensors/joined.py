"""A model composed of byte ranges of other models, read on demand."""

from collections.abc import Iterable
from dataclasses import dataclass

from anchorage.transport.tensors.chunks import ChunkSource, Manifest, chunk_digest, spans
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


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
            index, offset = self.source.manifest.locate(at)
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
    front : int
        Bytes at the start that are frozen tensors.
    """

    def __init__(self, layout: str, stretches: Iterable[Stretch], front: int = 0) -> None:
        self._parts: list[tuple[int, Stretch]] = []
        end = 0
        for stretch in stretches:
            self._parts.append((end, stretch))
            end += stretch.stop - stretch.start
        self._spans = spans(end, front)
        digests = tuple(chunk_digest(self.chunk(index)) for index in range(len(self._spans)))
        self.manifest = Manifest(layout, end, digests, front)

    def chunk(self, index: int) -> bytes:
        """Return one chunk."""
        start, stop = self._spans[index]
        pieces: list[bytes] = []
        for begin, part in self._parts:
            first, last = max(start, begin), min(stop, begin + part.stop - part.start)
            if first < last:
                pieces.extend(part.read(first - begin, last - begin))
        return b"".join(pieces)


class BehindFront:
    """An update behind the frozen tensors of a model (`ChunkSource`). Nothing is copied.

    Parameters
    ----------
    layout : Layout
        Of both together.
    model : ChunkSource
        A model with frozen tensors.
    update : ChunkSource
        Without any.
    """

    def __init__(self, layout: Layout, model: ChunkSource, update: ChunkSource) -> None:
        fixed, front = model.manifest.fixed, model.manifest.front
        self._model, self._update, self._ahead = model, update, len(fixed)
        digests = (*fixed, *update.manifest.digests)
        self.manifest = Manifest(layout.digest, front + update.manifest.nbytes, digests, front)

    def chunk(self, index: int) -> bytes:
        """Return one chunk."""
        ahead = self._ahead
        return self._model.chunk(index) if index < ahead else self._update.chunk(index - ahead)


def behind_front(update: ChunkSource, layout: Layout, model: ModelBytes) -> ChunkSource:
    """Return an update of a layout as a silo that scores it needs it: behind the model's frozen tensors, where there are any."""
    return BehindFront(layout.behind(model.layout), model, update) if model.layout.front else update


def models_in(source: ChunkSource, layout: Layout) -> list[ChunkSource]:
    """Return the models of one layout that lie one behind the other in a source; the source itself where it is one model."""
    size, total = layout.nbytes, source.manifest.nbytes
    return [part_of(source, start, start + size) for start in range(0, total, size)]


def part_of(source: ChunkSource, start: int, stop: int) -> ChunkSource:
    """Return the bytes `start` to `stop` (exclusive) of a source, of a layout that its manifest names; the source itself where they are all."""
    if (start, stop) == (0, source.manifest.nbytes):
        return source
    return JoinedSource(source.manifest.layout, [Stretch(source, start, stop)])

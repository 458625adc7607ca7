"""An update with fewer bits: its change of the model that it was trained from, rounded before it is announced.

What counts is the rounded update, at both ends and in a simulation: `round_update` makes it, the announcement names its bytes, and `Encoded` and
`Decoded` only say the same bytes in a shorter form. Rounding is stateless, and rounding twice is rounding once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest, spans
from anchorage.transport.tensors.codings import Coding
from anchorage.transport.tensors.layout import AUXILIARY_PREFIXES, PSI, Layout, TensorEntry
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.shortened import Shortened


@dataclass(frozen=True)
class Encoding:
    """How updates of one layout travel that came from a model of another: the network's tensors with two axes or more in `coding`."""

    coding: Coding
    down: Layout
    up: Layout

    def base(self, model: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return what an update starts from, uint8 [up.nbytes], of a model, uint8 [down.nbytes]; without a copy where it lies in one piece."""
        if self.up == self.down.trainable:
            return model[self.down.front :]
        base = np.zeros(self.up.nbytes, np.uint8)
        for entry in self.up.tensors:
            if self._encodes(entry):
                start = self.down.by_name[entry.name].offset
                base[entry.offset : entry.offset + entry.nbytes] = model[start : start + entry.nbytes]
        return base

    def base_of(self, model: ModelBytes) -> ChunkSource:
        """Return the same of a model in chunks."""
        if self.up == model.layout.trainable:
            return model.trainable
        return ModelBytes.of(self.up, self.base(model.buffer()))

    def fits(self, model: Manifest, update: Manifest) -> bool:
        """Return whether an update from a model travels so: both are of the layouts, and nothing is behind them."""
        return (model.layout, update.layout, update.nbytes) == (self.down.digest, self.up.digest, self.up.nbytes)

    def _encodes(self, entry: TensorEntry) -> bool:
        """Return whether a tensor of the update is rounded."""
        other = self.down.by_name.get(entry.name)
        network = not entry.name.startswith((*AUXILIARY_PREFIXES, PSI))
        return (
            network
            and other is not None
            and len(entry.shape) >= 2
            and entry.dtype == other.dtype == "F32"
            and entry.shape == other.shape
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the tensors that are rounded."""
        return frozenset(entry.name for entry in self.up.tensors if self._encodes(entry))

    @cached_property
    def parts(self) -> tuple[tuple[tuple[int, int, bool], ...], ...]:
        """Stretches of every chunk, first byte and the byte after the last, and whether they are rounded."""
        return tuple(tuple(self._stretches(start, stop)) for start, stop in spans(self.up.nbytes))

    def _stretches(self, start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
        """Yield a chunk's stretches, counted from its beginning; neighbours of one kind are one."""
        begin, kind = start, False
        for entry in self.up.tensors:
            first, last = max(start, entry.offset), min(stop, entry.offset + entry.nbytes)
            if first >= last:
                continue
            if (encodes := self._encodes(entry)) != kind:
                if begin < first:
                    yield begin - start, first - start, kind
                begin, kind = first, encodes
        if begin < stop:
            yield begin - start, stop - start, kind

    def encode(self, index: int, data: bytes | memoryview, base: bytes | memoryview) -> bytes | None:
        """Return a chunk encoded; None where a change is not finite, or too large, or that would be no shorter."""
        pieces: list[bytes] = []
        for start, stop, coded in self.parts[index]:
            if coded:
                update, old = (np.frombuffer(each[start:stop], np.float32) for each in (data, base))
                piece = self.coding.encode(update, old)
            else:
                piece = bytes(data[start:stop])
            if piece is None:
                return None
            pieces.append(piece)
        return code if len(code := b"".join(pieces)) < len(data) else None

    def decode(self, index: int, data: bytes, base: bytes | memoryview) -> bytes:
        """Return the chunk that encoded bytes stand for.

        Raises
        ------
        ValueError
            They stand for none.
        """
        chunk = np.empty(self.parts[index][-1][1], np.uint8)
        self._decode(index, data, base, chunk)
        return chunk.tobytes()

    def _decode(self, index: int, data: bytes, base: bytes | memoryview, chunk: NDArray[np.uint8]) -> None:
        """Write what encoded bytes stand for into a chunk, uint8 [n]; raises ValueError as `decode` does."""
        at = 0
        for start, stop, coded in self.parts[index]:
            part = chunk[start:stop]
            if coded:
                at = self.coding.decode(data, at, np.frombuffer(base[start:stop], np.float32), part.view(np.float32))
            else:
                part[:] = np.frombuffer(data, np.uint8, stop - start, at)
                at += stop - start
        if at != len(data):
            raise ValueError(f"{len(data)} bytes in place of {at}")

    def round_update(
        self, update: NDArray[np.uint8], base: NDArray[np.uint8], lost: NDArray[np.uint8] | None = None
    ) -> None:
        """Put in place of an update, uint8 [up.nbytes], what will be decoded; a chunk that cannot be encoded stays as it is.

        Error feedback: `lost`, uint8 [up.nbytes], what was lost of changes before this one, is added first, and gets what is lost of the sum.
        """
        both = [] if lost is None else [(_floats(lost, part), _floats(update, part)) for part in self._coded]
        for residual, numbers in both:
            numbers += residual
            residual[:] = numbers
        for entry in self.up.tensors:
            if self._encodes(entry) and entry.nbytes:
                part = entry.offset, entry.offset + entry.nbytes
                tensor, before = _floats(update, part), _floats(base, part)
                if (chosen := self.coding.chosen(tensor, before)) is not None:
                    np.copyto(tensor, before, where=~chosen)
        for index, (start, stop) in enumerate(spans(self.up.nbytes)):
            chunk, base_bytes = update[start:stop], base[start:stop].data
            code = self.encode(index, chunk.data, base_bytes)
            if code is not None:
                self._decode(index, code, base_bytes, chunk)
        for residual, numbers in both:
            with np.errstate(invalid="ignore"):  # what is not finite travels as it is
                residual -= numbers
            residual[~np.isfinite(residual)] = 0

    @property
    def _coded(self) -> Iterator[tuple[int, int]]:
        """Stretches of the update that are encoded."""
        for (chunk, _), parts in zip(spans(self.up.nbytes), self.parts, strict=True):
            yield from ((chunk + start, chunk + stop) for start, stop, coded in parts if coded)


def _floats(buffer: NDArray[np.uint8], part: tuple[int, int]) -> NDArray[np.float32]:
    return buffer[slice(*part)].view(np.float32)


@lru_cache(maxsize=8)
def encoding_of(coding: Coding, down: str, up: str) -> Encoding:
    """Return the encoding of a run's layouts (JSON): one for all silos of a process."""
    return Encoding(coding, Layout.from_json(down), Layout.from_json(up))


class Encoded:
    """A rounded update whose chunks are read encoded (`ChunkSource`); its manifest still names the bytes that they stand for.

    A chunk that would not be decoded to its very bytes is read as it is.

    Parameters
    ----------
    update : ChunkSource
        What is sent.
    base : ChunkSource
        What it started from, in the update's layout.
    encoding : Encoding
        How it travels.
    """

    def __init__(self, update: ChunkSource, base: ChunkSource, encoding: Encoding) -> None:
        self.manifest = update.manifest
        self._update, self._base, self._encoding = update, base, encoding

    def chunk(self, index: int) -> bytes:
        """Return one chunk, encoded."""
        data, base = self._update.chunk(index), self._base.chunk(index)
        code = self._encoding.encode(index, data, base)
        return code if code is not None and self._encoding.decode(index, code, base) == data else data


class Decoded(Shortened):
    """Where an update's chunks arrive as `Encoded` sends them.

    Parameters
    ----------
    update : ChunkSink
        Gets the bytes that they stand for, and checks their digests.
    base, encoding
        As at the sender.
    """

    def __init__(self, update: ChunkSink, base: ChunkSource, encoding: Encoding) -> None:
        super().__init__(update, base)
        self._encoding = encoding

    def restore(self, index: int, data: bytes, model: bytes) -> bytes:
        """Return the chunk that encoded bytes stand for."""
        return self._encoding.decode(index, data, model)

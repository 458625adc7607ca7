"""An update with fewer bits: its change of the model that it was trained from, rounded before it is announced.

What counts is the rounded update, at both ends and in a simulation: `round_update` makes it, the announcement names its bytes, and `Encoded` and
`Decoded` only say the same bytes in a shorter form. Rounding is stateless, and rounding twice is rounding once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest, spans
from anchorage.transport.tensors.layout import BESIDE, PSI, Layout, TensorEntry
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.shortened import Shortened

Bits = Literal[8, 16]
Floats = NDArray[np.float32]

BLOCK = 256
"""Numbers that have one scale of 8 bits, a power of two."""
_LEAST, _MOST = -120, 100
"""Exponents of scales, as 8 bits say them from 0 on; a change that needs a larger one, or is not finite, has its chunk travel as it is."""
_FULL = 127.25
"""A block's largest change in steps of its scale: 63.6 to 127.25, so that the rounded one, of 64 to 127 steps, has the same scale."""


@dataclass(frozen=True)
class Encoding:
    """How updates of one layout travel that came from a model of another: `bits` for every number of the network's tensors with two axes or more."""

    bits: Bits
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
        network = not entry.name.startswith((*BESIDE, PSI))
        return (
            network
            and other is not None
            and len(entry.shape) >= 2
            and entry.dtype == other.dtype == "F32"
            and entry.shape == other.shape
        )

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

    def length(self, index: int) -> int:
        """Return how many bytes a chunk has when it is encoded."""
        return sum(
            self.size((stop - start) // 4) if coded else stop - start for start, stop, coded in self.parts[index]
        )

    def size(self, count: int) -> int:
        """Return how many bytes so many numbers have."""
        return 2 * count if self.bits == 16 else count - (-count // BLOCK)

    def encode(self, index: int, data: bytes | memoryview, base: bytes | memoryview) -> bytes | None:
        """Return a chunk encoded; None where a change is not finite, or too large."""
        pieces: list[bytes] = []
        for start, stop, coded in self.parts[index]:
            piece: bytes | None = bytes(data[start:stop])
            if coded:
                change = np.frombuffer(data[start:stop], np.float32) - np.frombuffer(base[start:stop], np.float32)
                piece = (
                    _to_16(change) if self.bits == 16 else _to_8(change, np.frombuffer(data[start:stop], np.float32))
                )
            if piece is None:
                return None
            pieces.append(piece)
        return b"".join(pieces)

    def decode(self, index: int, data: bytes, base: bytes | memoryview) -> bytes:
        """Return the chunk that encoded bytes stand for.

        Raises
        ------
        ValueError
            Their length is another than `length` says.
        """
        if len(data) != self.length(index):
            raise ValueError(f"{len(data)} bytes in place of {self.length(index)}")
        pieces, at = [], 0
        for start, stop, coded in self.parts[index]:
            count = self.size((stop - start) // 4) if coded else stop - start
            piece = data[at : at + count]
            at += count
            if coded:
                change = _from_16(piece) if self.bits == 16 else _from_8(piece, (stop - start) // 4)
                change += np.frombuffer(base[start:stop], np.float32)
                piece = change.tobytes()
            pieces.append(piece)
        return b"".join(pieces)

    def round_update(self, update: NDArray[np.uint8], base: NDArray[np.uint8]) -> None:
        """Put in place of an update, uint8 [up.nbytes], what will be decoded; a chunk that cannot be encoded stays as it is."""
        for index, (start, stop) in enumerate(spans(self.up.nbytes)):
            given, old = update[start:stop].data, base[start:stop].data
            code = self.encode(index, given, old)
            if code is not None:
                update[start:stop] = np.frombuffer(self.decode(index, code, old), np.uint8)


@lru_cache(maxsize=8)
def encoding_of(bits: Bits, down: str, up: str) -> Encoding:
    """Return the encoding of a run's layouts (JSON): one for all silos of a process."""
    return Encoding(bits, Layout.from_json(down), Layout.from_json(up))


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

    def restored(self, index: int, data: bytes, model: bytes) -> bytes:
        """Return the chunk that encoded bytes stand for."""
        return self._encoding.decode(index, data, model)


def _to_16(change: Floats) -> bytes | None:
    """Return changes as bfloat16, rounded to nearest, ties to even."""
    bits = change.view(np.uint32)
    if (bits & 0x7FFFFFFF).max(initial=0) >= 0x7F7F8000:  # not finite, or would become so
        return None
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2").tobytes()


def _from_16(data: bytes) -> Floats:
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


def _to_8(change: Floats, update: Floats) -> bytes | None:
    """Return the exponent of every block's scale, and the changes in steps of it, from -127 to 127.

    No step is finer than the update's own numbers, else a rounded update would not be rounded to itself.
    """
    count = len(change)
    blocks = _blocks(change)
    size, largest = _largest(_blocks(update)), _largest(blocks)
    if not (np.isfinite(largest).all() and np.isfinite(size).all()):
        return None
    exponent = np.maximum(_exponents(largest / np.float32(_FULL)), _exponents(size) - 21)
    exponent = np.maximum(exponent, _LEAST)
    if exponent.max(initial=_LEAST) > _MOST:
        return None
    steps = blocks * np.ldexp(np.float32(1), -exponent)[:, None]
    np.rint(steps, out=steps)
    np.clip(steps, -127, 127, out=steps)
    return (exponent - _LEAST).astype(np.uint8).tobytes() + steps.astype(np.int8).reshape(-1)[:count].tobytes()


def _blocks(numbers: Floats) -> Floats:
    """Return numbers as [blocks, BLOCK], the last block filled up with zeros."""
    if rest := -len(numbers) % BLOCK:
        numbers = np.concatenate((numbers, np.zeros(rest, np.float32)))
    return numbers.reshape(-1, BLOCK)


def _largest(blocks: Floats) -> Floats:
    """Return every block's largest absolute value; NaN where there is one."""
    largest: Floats = np.maximum(blocks.max(axis=1), -blocks.min(axis=1))
    return largest


def _exponents(numbers: Floats) -> NDArray[np.int32]:
    """Return the least e for which 2**e is not below each number; `_LEAST` for 0."""
    mantissa, exponent = np.frexp(numbers)
    return np.where(numbers > 0, exponent - (mantissa == 0.5), _LEAST).astype(np.int32)


def _from_8(data: bytes, count: int) -> Floats:
    """Return the changes, float32 [count]; raises ValueError where a scale is larger than any that is sent."""
    blocks = -(-count // BLOCK)
    exponent = np.frombuffer(data, np.uint8, blocks).astype(np.int32) + _LEAST
    if exponent.max(initial=_LEAST) > _MOST:
        raise ValueError(f"a scale of 2 to the power of {exponent.max()}")
    steps = _blocks(np.frombuffer(data, np.int8, count, blocks).astype(np.float32))
    return (steps * np.ldexp(np.float32(1), exponent)[:, None]).reshape(-1)[:count]

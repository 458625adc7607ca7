"""Single tensors of updates, read and replaced chunk by chunk. Needs no torch."""

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.aggregation.regions import Region
from anchorage.transport.tensors.chunks import CHUNK_BYTES, ChunkSource
from anchorage.transport.tensors.layout import TensorEntry
from anchorage.transport.tensors.model import ModelBytes


def numbers_in(entry: TensorEntry) -> int:
    """Return how many numbers a tensor has."""
    return Region(0, entry.nbytes, entry.dtype).count


class TensorReader:
    """Reads tensors of a source; neighbouring ones from one look at their chunk."""

    def __init__(self, source: ChunkSource) -> None:
        self._source = source
        self._held: tuple[int, bytes] = (-1, b"")

    def __call__(self, entry: TensorEntry) -> NDArray[np.float64]:
        """Return a tensor's numbers, float64, flat."""
        data = b""
        while len(data) < entry.nbytes:
            index, first = divmod(entry.offset + len(data), CHUNK_BYTES)
            if self._held[0] != index:
                self._held = index, self._source.chunk(index)
            data += self._held[1][first : first + entry.nbytes - len(data)]
        return Region(0, entry.nbytes, entry.dtype).read(data).astype(np.float64)


def with_tensors(model: ModelBytes, values: dict[TensorEntry, NDArray[np.float64]]) -> ModelBytes:
    """Return the model with some tensors replaced; chunks without any of them are taken as they are."""
    changed: dict[int, bytearray] = {}
    for entry, numbers in values.items():
        data, done = Region(0, entry.nbytes, entry.dtype).encode(numbers), 0
        while done < len(data):
            index, first = divmod(entry.offset + done, CHUNK_BYTES)
            part = data[done : done + CHUNK_BYTES - first]
            chunk = changed.setdefault(index, bytearray(model.chunk(index)))
            chunk[first : first + len(part)] = part
            done += len(part)
    return ModelBytes(model.layout, (bytes(changed.get(i, chunk)) for i, chunk in enumerate(model.chunks)))

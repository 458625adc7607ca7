"""Lossless compression of an update as the difference from the model that it was trained from (methods reference, 6.6)."""

import zlib

import numpy as np

from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.shortened import Shortened

_RAW = -15  # deflate without a header, with the widest window
_WORD = 4  # bytes; their first, second, ... bytes are packed apart, for the high ones hardly differ


class Differences:
    """An update whose chunks are read in compressed form (`ChunkSource`); its manifest still names the bytes that they stand for.

    A chunk is the update's bytes, or, where that is shorter, its exclusive or with the model's, deflated.

    Parameters
    ----------
    update : ChunkSource
        What is sent.
    model : ChunkSource
        Its first bytes are of the update's layout.
    """

    def __init__(self, update: ChunkSource, model: ChunkSource) -> None:
        self.manifest = update.manifest
        self._update, self._model = update, model

    def chunk(self, index: int) -> bytes:
        """Return one compressed chunk."""
        data = self._update.chunk(index)
        if len(data) % _WORD:
            return data
        changes = _exclusive_or(data, self._model.chunk(index)).reshape(-1, _WORD).T.tobytes()
        deflate = zlib.compressobj(1, zlib.DEFLATED, _RAW, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
        packed = deflate.compress(changes) + deflate.flush()
        return packed if len(packed) < len(data) else data


class Restored(Shortened):
    """Where an update's chunks arrive as `Differences` sends them."""

    def restore(self, index: int, data: bytes, model: bytes) -> bytes:
        """Return the chunk that differences tell."""
        try:
            changes = zlib.decompressobj(_RAW).decompress(data, len(model))
            planes = np.frombuffer(changes, np.uint8).reshape(_WORD, -1)
            return _exclusive_or(planes.T.tobytes(), model).tobytes()
        except (zlib.error, ValueError) as error:
            raise ValueError(f"{len(data)} bytes that are no differences") from error


def _exclusive_or(data: bytes, other: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return the exclusive or of bytes and as many of other ones, uint8 [n]."""
    return np.frombuffer(data, np.uint8) ^ np.frombuffer(other, np.uint8, len(data))

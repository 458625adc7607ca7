"""Named arrays in a flat buffer that is read in stretches, never as a whole: large auxiliary data behind a model or an update."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.tensors.chunks import CHUNK_BYTES, ChunkSource
from anchorage.transport.tensors.joined import JoinedSource, Stretch
from anchorage.transport.tensors.layout import Layout, TensorEntry
from anchorage.transport.tensors.model import ModelBytes, array_dtype, dtype_name

LARGE_BYTES = CHUNK_BYTES
"""Arrays for silos of so many bytes or more travel in chunks."""


class LargeArrays:
    """Arrays whose bytes lie in a source.

    Parameters
    ----------
    layout : Layout
        What the bytes mean.
    source : ChunkSource
        Must stay readable.
    start : int
        Where they begin in the source, bytes.
    """

    def __init__(self, layout: Layout, source: ChunkSource, start: int = 0) -> None:
        self.layout, self.source, self.start = layout, source, start

    def rows(self, name: str, first: int, last: int) -> NDArray[Any]:
        """Return rows `first` to `last` (exclusive) of an array: along its first axis, as a copy.

        Raises
        ------
        AnchorageError
            The source cannot be read.
        """
        entry = self.layout.by_name[name]
        size = entry.nbytes // max(entry.shape[0], 1)
        data = b"".join(self._stretch(entry).read(first * size, last * size))
        return np.frombuffer(data, array_dtype(entry.dtype)).reshape(last - first, *entry.shape[1:])

    def _stretch(self, entry: TensorEntry) -> Stretch:
        begin = self.start + entry.offset
        return Stretch(self.source, begin, begin + entry.nbytes)


def layout_of(arrays: Mapping[str, NDArray[Any]]) -> Layout:
    """Lay out arrays by name.

    Raises
    ------
    ValueError
        One has a dtype that safetensors does not have.
    """
    return Layout.of((name, dtype_name(array.dtype), array.shape) for name, array in arrays.items())


def split_large(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], list[LargeArrays]]:
    """Return the arrays that travel in a message, and those of `LARGE_BYTES` or more."""
    large = {name: array for name, array in arrays.items() if array.nbytes >= LARGE_BYTES}
    small = {name: array for name, array in arrays.items() if name not in large}
    layout = layout_of(large)
    return small, [LargeArrays(layout, ModelBytes.from_arrays(layout, large))] if large else []


def joined_behind(model: ChunkSource, arrays: Sequence[LargeArrays]) -> tuple[ChunkSource, Layout]:
    """Return a model with large arrays behind it, and their common layout; the model itself where there are none.

    Raises
    ------
    ValueError
        Two of the arrays have one name.
    """
    entries = {t.name: (large, t) for large in arrays for t in large.layout.tensors}
    layout = Layout.of((t.name, t.dtype, t.shape) for large in arrays for t in large.layout.tensors)
    if not layout.tensors:
        return model, layout
    parts = [large._stretch(entry) for large, entry in (entries[t.name] for t in layout.tensors)]
    stretches = [Stretch(model, 0, model.manifest.nbytes), *parts]
    return JoinedSource(model.manifest.layout, stretches, model.manifest.front), layout

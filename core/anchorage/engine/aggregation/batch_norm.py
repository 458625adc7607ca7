"""What becomes of batch normalisation between silos and server (METHODS.md section 1, rules 4 and 5). Needs no torch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.aggregation.regions import Region
from anchorage.engine.aggregation.server_step import BUFFERS
from anchorage.transport.tensors.chunks import CHUNK_BYTES, ChunkSource
from anchorage.transport.tensors.layout import Layout, TensorEntry
from anchorage.transport.tensors.model import ModelBytes

_MEAN, _VARIANCE, _ = BUFFERS


def travelling(layout: Layout, policy: str) -> Layout:
    """Return what of a layout silos send: under Local nothing of batch normalisation, under Static nothing that it counts."""
    if policy == "Static":
        return layout.select(t.name for t in layout.tensors if not t.name.endswith(BUFFERS))
    if policy == "Local":
        own = local_names(layout)
        return layout.select(t.name for t in layout.tensors if t.name not in own)
    return layout


def local_names(layout: Layout) -> frozenset[str]:
    """Return the names of all tensors of batch normalisation, learnt and counted."""
    layers = {t.name.removesuffix(_MEAN) for t in layout.tensors if t.name.endswith(_MEAN)}
    return frozenset(t.name for t in layout.tensors if t.name[: t.name.rfind(".") + 1] in layers)


def pool_variances(mean: ModelBytes, sources: Sequence[ChunkSource], weights: Sequence[float]) -> ModelBytes:
    """Replace averaged running variances by those of the pooled data: a variance within silos plus one between them (KAT-Q1).

    Reads the chunks that hold running means and variances, source by source, so memory does not grow with their number.

    Parameters
    ----------
    mean : ModelBytes
        The weighted mean of the sources.
    sources : sequence of ChunkSource
        The updates, in the layout of `mean`.
    weights : sequence of float
        One per source, not negative, not all zero.
    """
    entries = mean.layout.by_name
    pairs = [(entries[name], entries[name.removesuffix(_MEAN) + _VARIANCE]) for name in entries if name.endswith(_MEAN)]
    centres = [np.zeros(numbers_in(entry)) for entry, _ in pairs]
    spreads = [np.zeros(numbers_in(entry)) for entry, _ in pairs]
    total = 0.0
    for source, weight in zip(sources, weights, strict=True):
        if weight > 0:
            before, total = total, total + weight
            read = TensorReader(source)
            for (mean_entry, variance_entry), centre, spread in zip(pairs, centres, spreads, strict=True):
                away = read(mean_entry) - centre
                spread += weight * read(variance_entry) + weight * before / total * away**2
                centre += weight / total * away
    return with_tensors(mean, {entry: spread / total for (_, entry), spread in zip(pairs, spreads, strict=True)})


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

"""Iterates over an update and the model that it came from, in pieces that fit the processor's cache."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import Layout

FLOATS: dict[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
"""Floating dtypes of numpy by their safetensors names."""


class Segments:
    """Contiguous ranges of equal dtype that an update (layout `up`) shares with a model (layout `down`).

    Raises
    ------
    ValueError
        A tensor of `up` is not in `down`, or has another dtype or shape there.
    """

    def __init__(self, down: Layout, up: Layout) -> None:
        runs: list[tuple[int, int, int, str]] = []
        for entry in up.tensors:
            source = down.by_name.get(entry.name)
            if source is None or (source.dtype, source.shape) != (entry.dtype, entry.shape):
                raise ValueError(f"tensor {entry.name} of the update is not in the model")
            if runs and self._follows(runs[-1], source.offset, entry.offset, entry.dtype):
                begin, to, nbytes, dtype = runs[-1]
                runs[-1] = (begin, to, nbytes + entry.nbytes, dtype)
            else:
                runs.append((source.offset, entry.offset, entry.nbytes, entry.dtype))
        self._runs = runs

    @staticmethod
    def _follows(run: tuple[int, int, int, str], source: int, target: int, dtype: str) -> bool:
        return (run[0] + run[2], run[1] + run[2], run[3]) == (source, target, dtype)

    def walk(
        self, model: NDArray[np.uint8], update: NDArray[np.uint8]
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any], bool]]:
        """Iterate over both buffers (uint8, shapes [down.nbytes] and [up.nbytes]) in the update's order, at most one chunk at a time.

        Yields
        ------
        tuple
            The model's piece, the update's piece (flat views of equal dtype and length), and whether the dtype is floating.
        """
        for source, target, nbytes, dtype in self._runs:
            floating = dtype in FLOATS
            kind: DTypeLike = FLOATS.get(dtype, np.uint8)
            done = 0
            while done < nbytes:
                step = min(nbytes - done, CHUNK_BYTES - (target + done) % CHUNK_BYTES)
                end = done + step
                old = model[source + done : source + end].view(kind)
                new = update[target + done : target + end].view(kind)
                yield old, new, floating
                done = end


def arrays_of(
    down: Layout, up: Layout, model: NDArray[np.uint8], update: NDArray[np.uint8]
) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Yield of every array of floats its name, and the model's and the update's numbers, flat views of equal length."""
    for entry in up.tensors:
        if entry.dtype in FLOATS:
            source, kind = down.by_name[entry.name], FLOATS[entry.dtype]
            old = model[source.offset : source.offset + source.nbytes].view(kind)
            yield entry.name, old, update[entry.offset : entry.offset + entry.nbytes].view(kind)

"""A model's bytes in memory, cut into chunks that are hashed once and sent to many."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.tensors.chunks import Manifest, chunk_digest, spans
from anchorage.transport.tensors.layout import ADAPTER_A, ADAPTER_B, ADAPTER_SCALE, LORA, PSI, Layout

_NUMPY = {
    "F64": "<f8", "I64": "<i8", "U64": "<u8", "F32": "<f4", "I32": "<i4", "U32": "<u4", "F16": "<f2", "BF16": "<u2", "I16": "<i2",
    "U16": "<u2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def array_dtype(name: str) -> np.dtype[Any]:
    """Return the array dtype, little-endian, that holds a safetensors dtype (bfloat16 as uint16)."""
    return np.dtype(_NUMPY[name])


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the safetensors name of an array's dtype.

    Raises
    ------
    ValueError
        The format has no such dtype.
    """
    for name, other in _NUMPY.items():
        if name != "BF16" and np.dtype(other) == dtype:
            return name
    raise ValueError(f"safetensors has no dtype {dtype}")


class ModelBytes:
    """One model: a layout and its flat buffer as a tuple of chunks (`ChunkSource`). Immutable.

    Parameters
    ----------
    layout : Layout
        What the bytes mean.
    chunks : iterable of bytes
        Those of `spans`, together ``layout.nbytes``.
    digests : iterable of bytes, optional
        `chunk_digest` of each chunk, where they are known already.
    """

    def __init__(self, layout: Layout, chunks: Iterable[bytes], digests: Iterable[bytes] | None = None) -> None:
        self.layout = layout
        self.chunks = tuple(chunks)
        if sum(len(c) for c in self.chunks) != layout.nbytes:
            raise ValueError(f"the layout has {layout.nbytes} bytes, the chunks {sum(len(c) for c in self.chunks)}")
        known = tuple(digests) if digests is not None else tuple(chunk_digest(c) for c in self.chunks)
        self.manifest = Manifest(layout.digest, layout.nbytes, known, layout.front)

    @property
    def digest(self) -> str:
        """Content address of the model, hex."""
        return self.manifest.digest

    def chunk(self, index: int) -> bytes:
        """Return one chunk."""
        return self.chunks[index]

    @classmethod
    def of(cls, layout: Layout, buffer: NDArray[np.uint8]) -> "ModelBytes":
        """Copy a flat buffer into chunks."""
        flat = buffer.data
        return cls(layout, (bytes(flat[start:stop]) for start, stop in spans(layout.nbytes, layout.front)))

    @classmethod
    def from_arrays(cls, layout: Layout, arrays: Mapping[str, NDArray[Any]]) -> "ModelBytes":
        """Copy named arrays into the layout's buffer (bfloat16 as uint16).

        Raises
        ------
        ValueError
            An array is missing or has another shape or dtype than the layout says.
        """
        buffer = np.empty(layout.nbytes, np.uint8)
        write_arrays(layout, buffer, arrays)
        return cls.of(layout, buffer)

    def with_tensors(self, part: "ModelBytes") -> "ModelBytes":
        """Return this model with the tensors that `part` has taken from it; `part` itself where it has them all.

        Raises
        ------
        ValueError
            `part` has a tensor that this model has not, or in another shape or dtype.
        """
        if part.layout == self.layout:
            return part
        trainable = self.trainable
        if unknown := part.layout.by_name.keys() - trainable.layout.by_name.keys():
            raise ValueError(f"the model has no tensor {sorted(unknown)[0]} that changes")
        if trainable is not self:
            new, fixed = trainable.with_tensors(part), self.manifest.fixed
            return ModelBytes(self.layout, (*self.chunks[: len(fixed)], *new.chunks), (*fixed, *new.manifest.digests))
        return ModelBytes.from_arrays(self.layout, {**self.arrays(), **part.arrays()})

    @property
    def trainable(self) -> "ModelBytes":
        """The tensors that are not frozen; this model itself where none is. Nothing is copied."""
        if not self.layout.front:
            return self
        ahead = len(self.manifest.fixed)
        return ModelBytes(self.layout.trainable, self.chunks[ahead:], self.manifest.digests[ahead:])

    def of_network(self) -> "ModelBytes":
        """Return the network's tensors alone, none frozen, FedMatch's parts and adapters added up; this model itself where there are no others."""
        layout = self.layout.of_network()
        if layout == self.layout:
            return self
        arrays = self.arrays()
        for name in [name for name in arrays if name.startswith(PSI)]:
            arrays[name.removeprefix(PSI).replace("/", ".")] += arrays[name]
        for name in [name for name in arrays if name.startswith(LORA) and name.endswith(ADAPTER_B)]:
            key = name.removesuffix(ADAPTER_B)
            change = arrays[LORA + ADAPTER_SCALE] * (arrays[name] @ arrays[key + ADAPTER_A])
            adapted = arrays[key.removeprefix(LORA).replace("/", ".")]
            adapted += change.reshape(adapted.shape)
        return ModelBytes.from_arrays(layout, arrays)

    def buffer(self) -> NDArray[np.uint8]:
        """Return the flat buffer as one new array, shape [nbytes]."""
        buffer, at = np.empty(self.layout.nbytes, np.uint8), 0
        for data in self.chunks:
            buffer[at : at + len(data)] = np.frombuffer(data, np.uint8)
            at += len(data)
        return buffer

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return every tensor by name, as views of one new buffer."""
        return read_arrays(self.layout, self.buffer())


def read_arrays(layout: Layout, buffer: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Return every tensor by name, as views of `buffer` (bfloat16 as uint16)."""
    return {
        t.name: buffer[t.offset : t.offset + t.nbytes].view(_NUMPY[t.dtype]).reshape(t.shape) for t in layout.tensors
    }


def write_arrays(layout: Layout, buffer: NDArray[np.uint8], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy named arrays into `buffer`; arrays that the layout does not name are left out.

    Raises
    ------
    ValueError
        An array is missing or has another shape or dtype than the layout says.
    """
    for entry in layout.tensors:
        array = arrays.get(entry.name)
        if array is None or array.shape != entry.shape or array.dtype != np.dtype(_NUMPY[entry.dtype]):
            array_text = "nothing" if array is None else f"{array.dtype} {array.shape}"
            raise ValueError(f"tensor {entry.name}: the layout says {entry.dtype} {entry.shape}, found {array_text}")
        buffer[entry.offset : entry.offset + entry.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

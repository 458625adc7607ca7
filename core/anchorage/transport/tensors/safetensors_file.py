"""Models as safetensors files: a header followed by the flat buffer, written chunk by chunk."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import FILE_UNREADABLE
from anchorage.api.errors.storage import TENSOR_FILE_UNUSABLE
from anchorage.api.regular_files import open_regular
from anchorage.transport.files import replacing
from anchorage.transport.tensors.chunks import spans
from anchorage.transport.tensors.layout import ITEM_BYTES, Layout, TensorEntry
from anchorage.transport.tensors.model import ModelBytes, array_dtype, dtype_name

_LONGEST_HEADER = 100 << 20
"""Bytes; the format's own limit."""

_FROZEN = "frozen_bytes"
"""What a file says of itself whose first tensors are frozen: their length."""


_HEADER_STEP = 4096
"""Bytes that the header of a file with frozen tensors is a multiple of, so that these lie in the same place in the next file."""


@dataclass(frozen=True, slots=True)
class Held:
    """The frozen tensors of a file that this process wrote."""

    start: int
    """Where they begin, bytes."""
    fixed: tuple[bytes, ...]
    """Digests of their chunks; empty where there are none."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """The content of a safetensors file."""

    model: ModelBytes
    """The tensors of the wanted layout, or all of them."""
    arrays: Mapping[str, NDArray[Any]]
    """The other tensors."""
    metadata: Mapping[str, str]
    """What the file says of itself."""


def write_safetensors(
    path: Path,
    model: ModelBytes,
    *,
    arrays: Mapping[str, NDArray[Any]] | None = None,
    metadata: Mapping[str, str] | None = None,
    sync: bool = False,
    held: Held | None = None,
) -> Held:
    """Write a model and further arrays to `path` atomically.

    The file grows under the name `partial_path`; one that lies there is written over, which takes half the time of a new one.

    Parameters
    ----------
    path : Path
        The file.
    model : ModelBytes
        The model.
    arrays : mapping of str to ndarray, optional
        Arrays whose names the model does not have.
    metadata : mapping of str to str, optional
        What the file says of itself.
    sync : bool
        Whether the bytes are on disk when this returns.
    held : Held, optional
        What this returned for the file that lies under the name `partial_path`: frozen tensors that it has in their place are not written again.

    Returns
    -------
    Held
        Where the frozen tensors lie now.

    Raises
    ------
    OSError
        The disk is full or not writable.
    ValueError
        An array has a name that the model has, or a dtype that the format has not.
    """
    extra = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    if conflicts := extra.keys() & model.layout.by_name.keys():
        raise ValueError(f"the model has a tensor {sorted(conflicts)[0]} already")
    behind = Layout.of((name, dtype_name(array.dtype), array.shape) for name, array in extra.items())
    file_metadata = {**(metadata or {}), **({_FROZEN: str(model.layout.front)} if model.layout.front else {})}
    header: dict[str, Any] = {"__metadata__": file_metadata} if file_metadata else {}
    for base, layout in ((0, model.layout), (model.layout.nbytes, behind)):
        for t in layout.tensors:
            offsets = [base + t.offset, base + t.offset + t.nbytes]
            header[t.name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % (_HEADER_STEP if model.layout.front else 8))
    fixed = model.manifest.fixed
    file_layout = Held(8 + len(text), fixed)
    with replacing(path, durable=sync) as partial:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb", buffering=0) as file:
            _write(file, len(text).to_bytes(8, "little") + text)
            if fixed and held == file_layout:
                file.seek(model.layout.front, os.SEEK_CUR)
            for data in model.chunks[len(fixed) if held == file_layout else 0 :]:
                _write(file, data)
            for t in behind.tensors:
                _write(file, extra[t.name].reshape(-1).view(np.uint8).data)
            file.truncate()
    return file_layout


def read_description(path: Path) -> tuple[Layout, Mapping[str, str]]:
    """Read only the header: the layout of all tensors, in file order, and the metadata.

    Raises
    ------
    AnchorageError
        The file cannot be read or is damaged.
    """
    with _readable(path), open_regular(path, buffering=0) as file:
        _, entries, metadata = _read_header(file, os.fstat(file.fileno()).st_size)
        return _layout(entries, metadata), metadata


def read_safetensors(path: Path, layout: Layout | None = None) -> StoredModel:
    """Read a safetensors file, its tensors in any order.

    Parameters
    ----------
    path : Path
        The file.
    layout : Layout, optional
        Which tensors make up the model; without it all of them, in the order in which they lie.

    Raises
    ------
    AnchorageError
        The file cannot be read, is damaged, or lacks a tensor of the layout.
    """
    with _readable(path), open_regular(path, buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        base, entries, metadata = _read_header(file, size)
        wanted = layout or _layout(entries, metadata)
        tensors_by_name = {t.name: t for t in entries}
        for t in wanted.tensors:
            if t.name not in tensors_by_name or (tensors_by_name[t.name].dtype, tensors_by_name[t.name].shape) != (
                t.dtype,
                t.shape,
            ):
                raise ValueError(f"it has no tensor {t.name} of dtype {t.dtype} and shape {list(t.shape)}")
        if all(tensors_by_name[t.name].offset == t.offset for t in wanted.tensors):
            chunks = (_read(file, base + at, end - at) for at, end in spans(wanted.nbytes, wanted.front))
            model = ModelBytes(wanted, chunks)
            rest = {t.name: _tensor(file, base, t) for t in entries if t.name not in wanted.by_name}
            return StoredModel(model, rest, metadata)
        arrays = {t.name: _tensor(file, base, t) for t in entries}
    model = ModelBytes.from_arrays(wanted, arrays)
    return StoredModel(model, {n: a for n, a in arrays.items() if n not in wanted.by_name}, metadata)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Convert errors in a file into failures of the catalogue."""
    try:
        yield
    except OSError as error:
        raise AnchorageError(FILE_UNREADABLE, f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise AnchorageError(TENSOR_FILE_UNUSABLE, f"{path}: {error}") from error


def _read_header(file: BinaryIO, size: int) -> tuple[int, list[TensorEntry], dict[str, str]]:
    """Return where the buffer starts, the tensors in the order of their offsets, and the metadata.

    Raises
    ------
    ValueError
        The header is not one, or does not fit the file's size.
    """
    length = int.from_bytes(_read(file, 0, 8), "little") if size >= 8 else size
    if length > min(size - 8, _LONGEST_HEADER):
        raise ValueError("it does not start with a header of the safetensors format")
    try:
        header = json.loads(_read(file, 8, length))
        metadata = {str(k): str(v) for k, v in header.pop("__metadata__", {}).items()}
        if not all(type(n) is int and n >= 0 for t in header.values() for n in (*t["shape"], *t["data_offsets"])):
            raise ValueError("its header is damaged: a length or a place is no whole number")
        entries = [
            TensorEntry(
                name, t["dtype"], tuple(t["shape"]), t["data_offsets"][0], prod(t["shape"]) * ITEM_BYTES[t["dtype"]]
            )
            for name, t in header.items()
        ]
        entries.sort(key=lambda t: (t.offset, t.nbytes))
        ends = [header[t.name]["data_offsets"][1] for t in entries]
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"its header is damaged: {type(error).__name__} {error}") from error
    at = 0
    for entry, end in zip(entries, ends, strict=True):
        if entry.offset != at or end - at != entry.nbytes:
            raise ValueError(f"its header is damaged: tensor {entry.name} is out of place")
        at = end
    if 8 + length + at != size:
        raise ValueError(f"it has {size} bytes, its header speaks of {8 + length + at}")
    return 8 + length, entries, metadata


def _layout(entries: Sequence[TensorEntry], metadata: Mapping[str, str]) -> Layout:
    front = int(metadata.get(_FROZEN, "0"))
    frozen = {t.name for t in entries if t.offset + t.nbytes <= front}
    return Layout.of(((t.name, t.dtype, t.shape) for t in entries), frozen)


def _tensor(file: BinaryIO, base: int, entry: TensorEntry) -> NDArray[Any]:
    return np.frombuffer(_read(file, base + entry.offset, entry.nbytes), array_dtype(entry.dtype)).reshape(entry.shape)


def _read(file: BinaryIO, start: int, nbytes: int) -> bytes:
    data = bytearray()
    while len(data) < nbytes:
        more = os.pread(file.fileno(), nbytes - len(data), start + len(data))
        if not more:
            raise ValueError("it ends too early")
        if len(more) == nbytes:
            return more
        data += more
    return bytes(data)


def _write(file: BinaryIO, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]

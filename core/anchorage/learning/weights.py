"""Between a network and the flat bytes that travel."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anchorage.errors import AnchorageError
from anchorage.errors.learning import MODEL_MISMATCH
from anchorage.learning.models import ANCHOR_HEAD
from anchorage.tensors.chunks import Manifest, chunk_digests
from anchorage.tensors.layout import Layout
from anchorage.tensors.model import read_arrays, write_arrays

_DTYPES = {torch.float32: "F32", torch.int64: "I64"}


def layout_of(network: nn.Module) -> Layout:
    """Lay out a network's parameters and buffers, integer counters of batch normalisation included."""
    return Layout.of(
        (name, _DTYPES[tensor.dtype], tuple(tensor.shape)) for name, tensor in network.state_dict().items()
    )


def upward(layout: Layout) -> Layout:
    """Return the layout of an update: without the anchor head, which no client loss reaches (METHODS.md 6.8, KAT A11)."""
    return layout.select(t.name for t in layout.tensors if not t.name.startswith(ANCHOR_HEAD))


def load(network: nn.Module, layout: Layout, buffer: NDArray[np.uint8]) -> None:
    """Copy a flat buffer, which is only read, into a network; see `load_arrays`."""
    load_arrays(network, read_arrays(layout, buffer))


def load_arrays(network: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy named arrays into a network on any device; an anchor head may be missing, and then stays.

    Raises
    ------
    AnchorageError
        A tensor is missing, unknown, or of another shape or dtype than the network's.
    """
    state: Mapping[str, Tensor] = network.state_dict()
    if unknown := sorted(arrays.keys() - state.keys()):
        raise AnchorageError(MODEL_MISMATCH, f"the model received has the tensor {unknown[0]}, the one here has not")
    for name, tensor in state.items():
        array = arrays.get(name)
        if array is None and name.startswith(ANCHOR_HEAD):
            continue
        wanted = f"{tensor.dtype} {tuple(tensor.shape)}".removeprefix("torch.")
        found = "nothing" if array is None else f"{array.dtype} {array.shape}"
        if array is None or found != wanted:
            raise AnchorageError(
                MODEL_MISMATCH, f"tensor {name}: the model here has {wanted}, the one received {found}"
            )
        tensor.copy_(torch.from_numpy(array.copy()))  # a copy: torch wants writable memory


def write(network: nn.Module, layout: Layout, out: Callable[[int], NDArray[np.uint8]]) -> Manifest:
    """Write a network's tensors into the buffer that ``out(nbytes)`` returns, and return its manifest."""
    buffer = out(layout.nbytes)
    state: Mapping[str, Tensor] = network.state_dict()
    write_arrays(layout, buffer, {t.name: state[t.name].detach().cpu().numpy() for t in layout.tensors})
    return Manifest(layout.digest, layout.nbytes, chunk_digests(buffer))

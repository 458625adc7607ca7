"""Between a network and the flat bytes that travel."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MODEL_MISMATCH
from anchorage.learning.hook_checks import check_kind
from anchorage.learning.method import TrainingMethod
from anchorage.learning.network import LOCAL_PART, TRAVELLING, Network
from anchorage.transport.tensors.chunks import LateManifest, Manifest
from anchorage.transport.tensors.layout import AUXILIARY_PREFIXES, HELPER, Layout
from anchorage.transport.tensors.model import ModelBytes, read_arrays, write_arrays


def layout_of(network: nn.Module) -> Layout:
    """Lay out a network's parameters and buffers, integer counters of batch normalisation included, its local part not."""
    return Layout.of(
        (name, TRAVELLING[tensor.dtype], tuple(tensor.shape))
        for name, tensor in network.state_dict().items()
        if not name.startswith(LOCAL_PART)
    )


def down_layout(network: Network, method: TrainingMethod) -> Layout:
    """Return the layout of the global model as it travels down: the network's tensors, and what pieces send beside them."""
    layout = layout_of(network)
    for piece in method.pieces:
        layout = check_kind(piece, "down_layout", piece.down_layout(layout, network), Layout, "a Layout")
    return layout.freeze(network.frozen)


def up_layout(down: Layout, method: TrainingMethod) -> Layout:
    """Return the layout of an update: without frozen tensors, and what pieces omit."""
    layout = down.trainable
    for piece in method.pieces:
        layout = check_kind(piece, "up_layout", piece.up_layout(layout, method.resolved), Layout, "a Layout")
    return layout


def without_beside(layout: Layout) -> Layout:
    """Return the layout of the global model alone; helpers' parts are only behind some tasks' models."""
    return layout.select(t.name for t in layout.tensors if not t.name.startswith(HELPER))


def network_arrays(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the tensors of the network itself, without those that travel beside it (FedMatch's helpers, SCAFFOLD's variates)."""
    return {name: array for name, array in arrays.items() if not name.startswith(AUXILIARY_PREFIXES)}


def load(network: Network, layout: Layout, buffer: NDArray[np.uint8], fixed: tuple[bytes, ...] = ()) -> None:
    """Copy a flat buffer, which is only read, into a network; see `load_arrays`.

    `fixed` is `Manifest.fixed` of the whole model: frozen tensors that the network holds already are not copied again.
    """
    held = layout.trainable if fixed and network.front == fixed else layout
    arrays = network_arrays(read_arrays(layout, buffer))
    load_arrays(network, {name: array for name, array in arrays.items() if name in held.by_name})
    network.front = fixed


def load_model(network: Network, model: ModelBytes) -> None:
    """Copy a model into a network; of its bytes no more are touched than differ from what the network holds."""
    fixed = model.manifest.fixed
    part = model.trainable if fixed and network.front == fixed else model
    load(network, part.layout, part.buffer(), fixed)


def load_arrays(network: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy named arrays into a network on any device.

    Heads that are `Network.optional`, adapters, and frozen tensors that it holds may be missing, and then stay.

    Raises
    ------
    AnchorageError
        A tensor is missing, unknown, or of another shape or dtype than the network's.
    """
    state: Mapping[str, Tensor] = network.state_dict()
    if unknown := sorted(arrays.keys() - state.keys()):
        raise AnchorageError(MODEL_MISMATCH, f"the model received has the tensor {unknown[0]}, the one here has not")
    held = network.frozen if isinstance(network, Network) and network.front else frozenset[str]()
    optional = network.optional if isinstance(network, Network) else ()
    if isinstance(network, Network) and network.frozen & arrays.keys():
        network.front = ()
    for name, tensor in state.items():
        array = arrays.get(name)
        if array is None and (name.startswith(optional) or name in held):
            continue
        wanted = f"{tensor.dtype} {tuple(tensor.shape)}".removeprefix("torch.")
        array_text = "nothing" if array is None else f"{array.dtype} {array.shape}"
        if array is None or array_text != wanted:
            raise AnchorageError(
                MODEL_MISMATCH, f"tensor {name}: the model here has {wanted}, the one received {array_text}"
            )
        tensor.copy_(torch.from_numpy(array.copy()))  # a copy: torch wants writable memory


def trained_arrays(network: nn.Module) -> dict[str, NDArray[Any]]:
    """Return the tensors that are not frozen, by their names; on the CPU they are the network's own memory."""
    frozen = network.frozen if isinstance(network, Network) else ()
    return {n: t.detach().cpu().numpy() for n, t in network.state_dict().items() if n not in frozen}


def local_arrays(network: nn.Module) -> dict[str, NDArray[Any]]:
    """Return copies of the tensors that never leave a silo, by their names."""
    state: Mapping[str, Tensor] = network.state_dict()
    return {n: t.detach().cpu().numpy().copy() for n, t in state.items() if n.startswith(LOCAL_PART)}


def load_local(network: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put back what `local_arrays` returned; other arrays are left out."""
    state: Mapping[str, Tensor] = network.state_dict()
    for name, tensor in state.items():
        if name.startswith(LOCAL_PART):
            tensor.copy_(torch.from_numpy(arrays[name].copy()))


def write(
    network: nn.Module,
    layout: Layout,
    out: Callable[[int], NDArray[np.uint8]],
    extra_arrays: Mapping[str, NDArray[Any]] | None = None,
) -> Manifest:
    """Write a network's tensors, and those that travel beside it, into the buffer that ``out(nbytes)`` returns; return its manifest."""
    buffer = out(layout.nbytes)
    state: Mapping[str, Tensor] = network.state_dict()
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in state.items() if name in layout.by_name}
    write_arrays(layout, buffer, {**arrays, **(extra_arrays or {})})
    return LateManifest(layout.digest, buffer)

"""Between a network and the flat bytes that travel."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MODEL_MISMATCH
from anchorage.api.method import ResolvedMethod
from anchorage.engine.aggregation.batch_norm import travelling
from anchorage.engine.aggregation.helper_models import HELPER
from anchorage.engine.aggregation.server_step import BUFFERS
from anchorage.learning.heads import LOCAL_PART
from anchorage.learning.models import ANCHOR_HEAD, CLASSIFIER
from anchorage.transport.tensors.chunks import LateManifest, Manifest
from anchorage.transport.tensors.layout import CONTROL, PSI, Layout
from anchorage.transport.tensors.model import read_arrays, write_arrays

BESIDE = (HELPER, CONTROL)
"""Begin the names of tensors that travel in a model and are no part of the network."""

_DTYPES = {torch.float32: "F32", torch.int64: "I64"}


def layout_of(network: nn.Module) -> Layout:
    """Lay out a network's parameters and buffers, integer counters of batch normalisation included, its local part not."""
    return Layout.of(
        (name, _DTYPES[tensor.dtype], tuple(tensor.shape))
        for name, tensor in network.state_dict().items()
        if not name.startswith(LOCAL_PART)
    )


def upward(layout: Layout, method: ResolvedMethod) -> Layout:
    """Return the layout of an update: without what no silo trains.

    That is the anchor head (METHODS.md 6.8, KAT A11), the classifier where silos learn without labels (6.13), and FedMatch's sigma where the
    server alone has labels (6.6).
    """
    slot = method.self_supervised
    unlearnt = slot.type != "None" and slot.online_classifier == "Disabled"
    prefixes = (ANCHOR_HEAD, CLASSIFIER) if unlearnt else (ANCHOR_HEAD,)
    names = [t.name for t in layout.tensors if not t.name.startswith(prefixes)]
    if method.decomposition.type == "SigmaPsi" and method.server_training.type == "Anchors":
        names = [name for name in names if name.startswith(PSI) or name.endswith(BUFFERS)]
    return travelling(layout.select(names), method.batch_norm.policy)


def network_arrays(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the tensors of the network itself, without those that travel beside it (FedMatch's helpers, SCAFFOLD's variates)."""
    return {name: array for name, array in arrays.items() if not name.startswith(BESIDE)}


def load(network: nn.Module, layout: Layout, buffer: NDArray[np.uint8]) -> None:
    """Copy a flat buffer, which is only read, into a network; see `load_arrays`."""
    load_arrays(network, network_arrays(read_arrays(layout, buffer)))


def load_arrays(network: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy named arrays into a network on any device; an anchor head or FedMatch's psi may be missing, and then stays.

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
        if array is None and name.startswith((ANCHOR_HEAD, PSI, LOCAL_PART)):
            continue
        wanted = f"{tensor.dtype} {tuple(tensor.shape)}".removeprefix("torch.")
        found = "nothing" if array is None else f"{array.dtype} {array.shape}"
        if array is None or found != wanted:
            raise AnchorageError(
                MODEL_MISMATCH, f"tensor {name}: the model here has {wanted}, the one received {found}"
            )
        tensor.copy_(torch.from_numpy(array.copy()))  # a copy: torch wants writable memory


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
    beside: Mapping[str, NDArray[Any]] | None = None,
) -> Manifest:
    """Write a network's tensors, and those that travel beside it, into the buffer that ``out(nbytes)`` returns; return its manifest."""
    buffer = out(layout.nbytes)
    state: Mapping[str, Tensor] = network.state_dict()
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in state.items() if name in layout.by_name}
    write_arrays(layout, buffer, {**arrays, **(beside or {})})
    return LateManifest(layout.digest, buffer)

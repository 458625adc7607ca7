"""Batch normalisation at a silo and at the server: what stays, what is counted anew (methods reference, section 1, rule 5; 6.7)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.learning.network import Network, is_frozen
from anchorage.learning.networks.layer_types import BATCH_NORMS, BatchNorm
from anchorage.learning.views import EVALUATION_BATCH, Views
from anchorage.learning.weights import layout_of
from anchorage.transport.tensors.layout import norm_names

_STATE_PREFIX = "batch-norm/"
_GROUPS, _GROUP = 32, 4


def freeze_statistics(network: nn.Module) -> None:
    """Have training leave running statistics as they came; it normalises by each batch's own anyway."""
    for layer in _layers(network):
        layer.momentum = 0.0


def use_statistics(module: nn.Module) -> None:
    """Have training normalise by the running statistics, as evaluation does; they stay as they came."""
    for layer in _layers(module):
        layer.register_forward_pre_hook(_in_evaluation)


def has_statistics(module: nn.Module) -> bool:
    """Return whether batch normalisation that trains keeps running statistics."""
    return any(True for _ in _layers(module))


def counts_statistics(module: nn.Module) -> bool:
    """Return whether training normalises by the statistics of batches."""
    return any(_in_evaluation not in layer._forward_pre_hooks.values() for layer in _layers(module))


def _in_evaluation(layer: nn.Module, _inputs: object) -> None:
    layer.eval()  # whatever train() said of the network


def replace_by_groups(encoder: Any) -> None:
    """Put group normalisation in place of batch normalisation: as many groups up to `_GROUPS` as have at least `_GROUP` channels.

    Raises
    ------
    AnchorageError
        NETWORK_UNUSABLE: a layer does more than normalise, as some of timm's do.
    """
    for path, layer in [(path, m) for path, m in encoder.named_modules() if isinstance(m, BATCH_NORMS)]:
        if type(layer) is not nn.BatchNorm2d:
            detail = f"found the layer {type(layer).__name__}, which group normalisation cannot replace"
            raise AnchorageError(NETWORK_UNUSABLE, f"{detail}; choose another network, or another batchNorm")
        channels = layer.num_features
        most = min(_GROUPS, max(1, channels // _GROUP))
        groups = next(count for count in range(most, 0, -1) if channels % count == 0)
        encoder.set_submodule(path, nn.GroupNorm(groups, channels, layer.eps, layer.affine, layer.weight.device))
        encoder.reduction = 1  # a single image can be trained on


def recalibrate(network: Network, views: Views, indices: NDArray[np.int64]) -> None:
    """Count the encoder's running statistics anew over plain images: averages over batches of nearly equal size.

    Parameters
    ----------
    network : Network
        In eval mode, and again so afterwards; what it has learnt stays.
    views : Views
        The images.
    indices : ndarray of int64, shape [n]
        Which of them, in an order that does not follow their classes.
    """
    if not (layers := list(_layers(network.encoder))):
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # PyTorch's word for the average of all batches
    network.train()
    try:
        with torch.no_grad():
            for batch in np.array_split(indices, -(-len(indices) // EVALUATION_BATCH)):
                network.embed(views.plain(views.to_device(batch)))
    finally:
        network.eval()
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


def norm_arrays(network: nn.Module) -> dict[str, NDArray[Any]]:
    """Return copies of every tensor of the normalisation (`anchorage.transport.tensors.layout.norm_names`), to be kept at a silo."""
    return {_STATE_PREFIX + name: tensor.detach().cpu().numpy().copy() for name, tensor in _tensors(network).items()}


def load_norms(network: nn.Module, previous_state: Mapping[str, NDArray[Any]]) -> None:
    """Put back what `norm_arrays` returned, over what was received; nothing was kept before a silo's first round."""
    for name, tensor in _tensors(network).items():
        if (array := previous_state.get(_STATE_PREFIX + name)) is not None:
            tensor.copy_(torch.from_numpy(array.copy()))


def _layers(network: nn.Module) -> Iterator[BatchNorm]:
    """Yield the layers that train."""
    return (layer for layer in network.modules() if isinstance(layer, BATCH_NORMS) and not is_frozen(layer))


def _tensors(network: nn.Module) -> Mapping[str, Tensor]:
    names = norm_names(layout_of(network))
    return {name: tensor for name, tensor in network.state_dict().items() if name in names}

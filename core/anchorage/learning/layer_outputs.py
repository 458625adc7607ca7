"""Outputs of a layer of a network that a federation names, for pictures."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.learning.heads import EmbeddingHead
from anchorage.learning.network import Network

_ENCODER = "encoder"
_SHOWN = 20
"""Modules that a message names."""


def require_layer(network: Network, layer: str) -> None:
    """Refuse a layer that a network does not have.

    Raises
    ------
    AnchorageError
        NETWORK_UNUSABLE.
    """
    names = [name for name, _ in network.named_modules() if name]
    if layer not in names:
        top = [name for name in names if name.count(".") <= 1][:_SHOWN]
        detail = f"found evaluation.embeddings.layer {layer}, which the network has not"
        raise AnchorageError(NETWORK_UNUSABLE, f"{detail}; name a module such as {', '.join(top)}")


def layer_outputs(network: Network, layer: str) -> Callable[[Tensor], Tensor]:
    """Return what maps images [n, channels, H, W] to the outputs of a layer [n, d]; maps are averaged over their places, tokens over themselves.

    Parameters
    ----------
    network : Network
        In eval mode.
    layer : str
        Name of one of its modules.

    Raises
    ------
    AnchorageError
        NETWORK_UNUSABLE, when the function is called: the layer takes no part in the classification, or its output is no tensor.
    """
    if layer == _ENCODER:  # of a frozen one the images may be embeddings already
        return lambda images: _rows(network.embed(images), layer)
    head = network.find_head(layer)
    run = (lambda images: head(network.embed(images))) if isinstance(head, EmbeddingHead) else network.forward

    def outputs(images: Tensor) -> Tensor:
        captured: list[Any] = []

        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            captured.append(output)

        handle = attrgetter(layer)(network).register_forward_hook(keep)
        try:
            run(images)
        finally:
            handle.remove()
        if not captured:
            message = f"evaluation.embeddings.layer {layer} takes no part in the classification of these images; name encoder, or another layer"
            raise AnchorageError(NETWORK_UNUSABLE, message)
        return _rows(captured[-1], layer)

    return outputs


def _rows(output: Any, layer: str) -> Tensor:
    """Return one row per image: of a map [n, c, h, w] the mean of each channel, of tokens [n, t, d] their mean."""
    if not isinstance(output, Tensor):
        message = f"evaluation.embeddings.layer {layer} gives no tensor but {type(output).__name__}; name another layer"
        raise AnchorageError(NETWORK_UNUSABLE, message)
    rows: Tensor = output
    if rows.ndim == 4:
        rows = rows.mean((2, 3))
    elif rows.ndim == 3:
        rows = rows.mean(1)
    return rows.flatten(1)

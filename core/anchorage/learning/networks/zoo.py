"""Networks of other libraries as encoders, fitted to the images (docs/networks.md)."""

import re
from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.learning.device import mixed_precision
from anchorage.learning.networks.layer_types import BATCH_NORMS, DROPOUTS
from anchorage.learning.networks.stems import SMALL, patch_side
from anchorage.transport.tensors.layout import BUFFERS

_WEIGHTS_PREFIX = "encoder.network."
"""Begins the names of a `ZooEncoder`'s tensors in a model."""
_OLD_DENSE_LAYER = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)")
"""Names in the files that torchvision publishes for DenseNets; modules cannot have them any more."""


class ZooEncoder(nn.Module):
    """A library's classifier of images without its last linear map: images [n, channels, H, W] to embeddings [n, width].

    What is drawn while it trains, dropout and stochastic depth, is off: it would come from the process' generator, and the same seed would
    not give the same model. Tensors that neither are trained nor belong to batch normalisation are constants, made with the network: they
    do not travel.

    Parameters
    ----------
    network : Module
        The classifier; it is changed.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        path, head = [(path, m) for path, m in network.named_modules() if isinstance(m, nn.Linear)][-1]
        network.set_submodule(path, nn.Identity())
        self.network, self.width = network, head.in_features
        self._left_out = {f"{path}.{name}" for name, _ in head.named_parameters()}
        if not any(isinstance(layer, BATCH_NORMS) for layer in network.modules()):
            self.reduction = 1  # a single image can be trained on
        for path, layer in network.named_modules():
            # torchvision's stochastic depth by name: importing it takes a second and 160 MB; timm's has another attribute
            dropout = isinstance(layer, DROPOUTS) or type(layer).__name__ == "StochasticDepth"
            chance = "p" if dropout else "drop_prob"
            if hasattr(layer, chance):
                setattr(layer, chance, 0.0)
            for name, constant in list(layer.named_buffers(recurse=False)):
                if name not in BUFFERS:
                    layer.register_buffer(name, constant, persistent=False)
                    self._left_out.add(f"{path}.{name}")

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, width]."""
        embeddings: Tensor = self.network(x)
        return embeddings

    def of_library(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]] | None:
        """Return a library's weights as this encoder calls its tensors, without head and constants; None where they have its names already.

        What is of another network is left as it is, for the caller to refuse. Where the encoder takes grey images and the weights colour, the
        first convolution's are summed over the channels: a grey image is embedded as if each channel had been it. Position embeddings that a
        vision transformer has for images of another size are interpolated. As in the libraries, DenseNets' older names are understood, and
        counters of batch normalisation that older files lack are 0.
        """
        if any(name.startswith(_WEIGHTS_PREFIX) for name in arrays):
            return None
        arrays = {_OLD_DENSE_LAYER.sub(r"\1\2", name): array for name, array in arrays.items()}
        for path, layer in self.network.named_modules():
            if isinstance(layer, BATCH_NORMS) and f"{path}.running_var" in arrays:
                arrays.setdefault(f"{path}.num_batches_tracked", np.array(0))
        first = first_convolution(self.network)
        stem = next(f"{path}.weight" for path, layer in self.network.named_modules() if layer is first)
        fitted = {_WEIGHTS_PREFIX + name: array for name, array in arrays.items() if name not in self._left_out}
        if first.in_channels == 1 and (weight := arrays.get(stem)) is not None and weight.shape[1:2] == (3,):
            fitted[_WEIGHTS_PREFIX + stem] = weight.sum(1, keepdims=True)
        for name, parameter in self.network.named_parameters():
            if name.endswith(("pos_embedding", "pos_embed")) and (array := arrays.get(name)) is not None:
                fitted[_WEIGHTS_PREFIX + name] = self._resample(array, parameter.shape[1])
        return fitted

    def _resample(self, positions: NDArray[Any], tokens: int) -> NDArray[Any]:
        """Return position embeddings [1, n, width] for another number of tokens, as the network's library interpolates them."""
        patches: Any = getattr(self.network, "patch_embed", None)  # of timm's transformers
        if getattr(patches, "grid_size", None) is None or positions.ndim != 3:
            return _resample_positions(positions, tokens)
        from timm.layers.pos_embed import resample_abs_pos_embed

        prefix_tokens = tokens - patches.num_patches  # such as a class token
        if (
            positions.shape[1] == tokens
            or isqrt(max(0, positions.shape[1] - prefix_tokens)) ** 2 + prefix_tokens != positions.shape[1]
        ):
            return positions
        own_positions = torch.from_numpy(positions.copy())
        fitted: NDArray[Any] = resample_abs_pos_embed(
            own_positions, list(patches.grid_size), num_prefix_tokens=prefix_tokens
        ).numpy()
        return fitted


def _resample_positions(positions: NDArray[Any], tokens: int) -> NDArray[Any]:
    """Return position embeddings [1, 1 + p², width] for another number of patches, bicubic as torchvision's `interpolate_embeddings`.

    What is no class token and a square of patches, before and after, is returned as it is.
    """
    side, wanted = (isqrt(max(0, n - 1)) for n in (positions.shape[1], tokens))
    if side == wanted or (side * side + 1, wanted * wanted + 1) != (positions.shape[1], tokens):
        return positions
    grid = torch.from_numpy(positions[:, 1:].copy()).transpose(1, 2).reshape(1, -1, side, side)
    fitted = nn.functional.interpolate(grid, size=(wanted, wanted), mode="bicubic", align_corners=True)
    return np.concatenate([positions[:, :1], fitted.flatten(2).transpose(1, 2).numpy()], axis=1)


def checked_encoder(name: str, build: Callable[[], nn.Module], channels: int, side: int) -> ZooEncoder:
    """Return the encoder of a network that only its library knows, having seen that it embeds an image.

    Parameters
    ----------
    name : str
        How documents call it.
    build : callable
        Returns the classifier, fitted to the images.
    channels, side : int
        Of the images.

    Raises
    ------
    AnchorageError
        NETWORK_UNUSABLE: it cannot be built for these images, or takes none.
    """
    try:
        encoder = ZooEncoder(build())
        with torch.no_grad():
            output_shape = tuple(encoder.eval()(torch.zeros(1, channels, side, side)).shape)
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError, ArithmeticError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        message = f"{name} cannot take images of {side} pixels and {channels} channels: {first[:200]}"
        raise AnchorageError(NETWORK_UNUSABLE, f"{message}; choose another network or imageSize") from error
    if output_shape != (1, encoder.width):
        raise AnchorageError(NETWORK_UNUSABLE, f"{name} classifies no images by a linear map; choose another network")
    return encoder.train()


def first_convolution(network: nn.Module) -> nn.Conv2d:
    """Return the convolution that an image meets first."""
    return next(layer for layer in network.modules() if isinstance(layer, nn.Conv2d))


def fit_stem(network: nn.Module, channels: int, side: int) -> None:
    """Fit a network's first convolution to the images' channels and, as `anchorage.learning.networks.stems` says, to their size.

    Parameters
    ----------
    network : Module
        Its first convolution's weights are drawn anew where they change.
    channels : int
        Channels of the images.
    side : int
        Their height and width in pixels.
    """
    first = first_convolution(network)
    kernel, stride = first.kernel_size, first.stride
    patches = kernel == stride
    if side < SMALL and patches:
        kernel = stride = (patch_side(kernel[0], side),) * 2
    elif side < SMALL:
        kernel, stride = (3, 3), (1, 1)
        layers = [(path, m) for path, m in network.named_modules() if isinstance(m, (nn.Conv2d, nn.MaxPool2d))]
        if isinstance(layers[1][1], nn.MaxPool2d):
            network.set_submodule(layers[1][0], nn.Identity())
    if (kernel, stride, channels) == (first.kernel_size, first.stride, first.in_channels):
        return
    first.kernel_size, first.stride, first.in_channels = kernel, stride, channels
    if not patches and side < SMALL:
        first.padding = (1, 1)
    first.weight = nn.Parameter(torch.empty(first.out_channels, channels, *kernel, device=first.weight.device))
    first.reset_parameters()

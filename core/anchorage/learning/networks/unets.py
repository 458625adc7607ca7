"""Networks that give a map of features for each image, from which each pixel is classified.

An encoder of this kind has `width` (of an image's embedding), `map_width` (channels of the map) and, beside `forward`, `embedded`.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.learning.device import mixed_precision


class SmallUNet(nn.Module):
    """A U-Net of four levels with group normalisation (Ronneberger et al. 2015, in small): 8 to 64 channels, about 122,000 weights.

    Parameters
    ----------
    channels : int
        Channels of the images.
    """

    WIDTHS = (8, 16, 32, 64)
    reduction = 1
    """There is no batch normalisation: a single image can be trained on."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        widths = self.WIDTHS
        self.width, self.map_width = widths[-1], widths[0]
        self.down = nn.ModuleList(_Level(a, b) for a, b in pairwise((channels, *widths)))
        self.up = nn.ModuleList(_Level(b + a, a) for a, b in reversed(list(pairwise(widths))))

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to features [n, 8, H, W], not negative."""
        height, width = x.shape[-2:]
        *skipped, x = self._levels(padded(x, 8))
        for level, skip in zip(self.up, reversed(skipped), strict=True):
            larger = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = level(torch.cat([larger, skip], 1))
        return x[..., :height, :width]

    @mixed_precision
    def embedded(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 64]: the mean over the places of the smallest map."""
        return self._levels(padded(x, 8))[-1].mean((2, 3))

    def _levels(self, x: Tensor) -> list[Tensor]:
        """Return the maps of all levels, the largest first."""
        found: list[Tensor] = []
        for level in self.down:
            x = level(functional.max_pool2d(x, 2) if found else x)
            found.append(x)
        return found


class _Level(nn.Module):
    """Two convolutions with group normalisation."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(a, width, 3, padding=1, bias=False) for a in (before, width))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = functional.relu(norm(convolution(x)))
        return x


class MapEncoder(nn.Module):
    """A library's segmentation network without its last convolution: images [n, channels, H, W] to features [n, map_width, H, W].

    Parameters
    ----------
    network : Module
        The network, in eval mode; it is changed.
    head : str or None
        Name of its last convolution, of one pixel, which is taken away; None: it has none, and its output is the map.
    multiple : int
        What height and width must be a multiple of; images are padded at the right and at the bottom, and maps cut.
    channels, side : int
        Of the images.
    """

    reduction = 1

    def __init__(self, network: nn.Module, head: str | None, multiple: int, channels: int, side: int) -> None:
        super().__init__()
        if head is not None:
            network.set_submodule(head, nn.Identity())
        self.network, self._multiple = network, multiple
        self._bottleneck, self.width, self.map_width = self._measured(channels, side)

    def _measured(self, channels: int, side: int) -> tuple[str, int, int]:
        """Return the module with the smallest map, the last of several, its channels, and those of the map that the network gives."""
        seen: list[tuple[int, str, int]] = []
        names = [name for name, _ in self.network.named_modules() if name]

        def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                if isinstance(output, Tensor) and output.ndim == 4:
                    seen.append((output.shape[-1], name, output.shape[1]))

            return hook

        handles = [self.network.get_submodule(name).register_forward_hook(look(name)) for name in names]
        with torch.no_grad():
            found = self.network(padded(torch.zeros(1, channels, side, side), self._multiple))
        for handle in handles:
            handle.remove()
        smallest = min(width for width, _, _ in seen)
        _, name, width = next(each for each in reversed(seen) if each[0] == smallest)
        return name, width, int(found.shape[1])

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to features [n, map_width, H, W]."""
        height, width = x.shape[-2:]
        features: Tensor = self.network(padded(x, self._multiple))
        return features[..., :height, :width]

    @mixed_precision
    def embedded(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, width]: the mean over the places of the smallest map."""
        seen: list[Tensor] = []
        module = self.network.get_submodule(self._bottleneck)
        handle = module.register_forward_hook(lambda module, inputs, output: seen.append(output))
        try:
            self.network(padded(x, self._multiple))
        finally:
            handle.remove()
        return seen[-1].mean((2, 3))


def padded(x: Tensor, multiple: int) -> Tensor:
    """Return maps [n, c, h, w] with zeros at the right and at the bottom, so that both sides are multiples."""
    height, width = x.shape[-2:]
    right, below = -width % multiple, -height % multiple
    return functional.pad(x, (0, right, 0, below)) if right or below else x


def checked_map_encoder(
    name: str, build: Callable[[], nn.Module], head: str | None, multiple: int, channels: int, side: int
) -> MapEncoder:
    """Return the encoder of a library's segmentation network, having seen that it gives a map of an image's size.

    Parameters
    ----------
    name : str
        How documents call it.
    build : callable
        Returns the network.
    head, multiple, channels, side
        As of `MapEncoder`.

    Raises
    ------
    AnchorageError
        NETWORK_UNUSABLE: it cannot be built for these images, or takes none.
    """
    try:
        encoder = MapEncoder(build().eval(), head, multiple, channels, side)
        with torch.no_grad():
            found = tuple(encoder(torch.zeros(1, channels, side, side)).shape)
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError, ArithmeticError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        message = f"{name} cannot take images of {side} pixels and {channels} channels: {first[:200]}"
        raise AnchorageError(NETWORK_UNUSABLE, f"{message}; choose another network or imageSize") from error
    if found != (1, encoder.map_width, side, side):
        raise AnchorageError(NETWORK_UNUSABLE, f"{name} gives no map of the image's size; choose another network")
    return encoder.train()

"""Networks that give a map of features for each image, from which each pixel is classified.

An encoder of this kind has `width` (of an image's embedding), `map_width` (channels of the map) and, beside `forward`, `embed`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.learning.device import mixed_precision

_POOLS: Mapping[int, Callable[[Tensor, int], Tensor]] = {2: functional.max_pool2d, 3: functional.max_pool3d}


class SmallUNet(nn.Module):
    """A U-Net with group normalisation (Ronneberger et al. 2015, in small): of images four levels of 8 to 64 channels, about 122,000 weights; of
    volumes three levels of 8 to 32 channels, about 89,000.

    Parameters
    ----------
    channels : int
        Channels of the images.
    dimensions : int
        2 for images, 3 for volumes.
    """

    WIDTHS: Mapping[int, Sequence[int]] = {2: (8, 16, 32, 64), 3: (8, 16, 32)}
    """Channels of the levels, by dimensions."""
    reduction = 1
    """There is no batch normalisation: a single image can be trained on."""

    def __init__(self, channels: int, dimensions: int = 2) -> None:
        super().__init__()
        widths = self.WIDTHS[dimensions]
        self._multiple, self._pool = 2 ** (len(widths) - 1), _POOLS[dimensions]
        self.width, self.map_width = widths[-1], widths[0]
        self.down = nn.ModuleList(_Level(a, b, dimensions) for a, b in pairwise((channels, *widths)))
        self.up = nn.ModuleList(_Level(b + a, a, dimensions) for a, b in reversed(list(pairwise(widths))))

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W], or volumes [n, channels, x, y, z], to features [n, 8, ...], not negative."""
        sides = x.shape[2:]
        *skipped, x = self._levels(pad_sides(x, self._multiple))
        for level, skip in zip(self.up, reversed(skipped), strict=True):
            larger = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = level(torch.cat([larger, skip], 1))
        return cut(x, sides)

    @mixed_precision
    def embed(self, x: Tensor) -> Tensor:
        """Map images or volumes to embeddings [n, width]: the mean over the places of the smallest map."""
        return self._levels(pad_sides(x, self._multiple))[-1].flatten(2).mean(2)

    def _levels(self, x: Tensor) -> list[Tensor]:
        """Return the maps of all levels, the largest first."""
        level_outputs: list[Tensor] = []
        for level in self.down:
            x = level(self._pool(x, 2) if level_outputs else x)
            level_outputs.append(x)
        return level_outputs


class _Level(nn.Module):
    """Two convolutions with group normalisation."""

    def __init__(self, before: int, width: int, dimensions: int) -> None:
        super().__init__()
        convolution = nn.Conv2d if dimensions == 2 else nn.Conv3d
        self.convolutions = nn.ModuleList(convolution(a, width, 3, padding=1, bias=False) for a in (before, width))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = functional.relu(norm(convolution(x)))
        return x


class MapEncoder(nn.Module):
    """A library's segmentation network without its last convolution: images [n, channels, ...] to features [n, map_width, ...], two or three sides.

    Parameters
    ----------
    network : Module
        The network, in eval mode; it is changed.
    head : str or None
        Name of its last convolution, of one pixel, which is taken away; None: it has none, and its output is the map.
    multiple : int
        What the sides must be a multiple of; images are padded at their ends, and maps cut.
    shape : tuple of int
        Channels and sides of the images.
    """

    reduction = 1

    def __init__(self, network: nn.Module, head: str | None, multiple: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        if head is not None:
            network.set_submodule(head, nn.Identity())
        self.network, self._multiple = network, multiple
        self._bottleneck, self.width, self.map_width = self._measure(shape)

    def _measure(self, shape: tuple[int, ...]) -> tuple[str, int, int]:
        """Return the module with the smallest map, the last of several, its channels, and those of the map that the network gives."""
        layer_outputs: list[tuple[int, str, int]] = []
        dimensions = 1 + len(shape)
        names = [name for name, _ in self.network.named_modules() if name]

        def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                if isinstance(output, Tensor) and output.ndim == dimensions:
                    layer_outputs.append((output[0, 0].numel(), name, output.shape[1]))

            return hook

        handles = [self.network.get_submodule(name).register_forward_hook(look(name)) for name in names]
        with torch.no_grad():
            maps = self.network(pad_sides(torch.zeros(1, *shape), self._multiple))
        for handle in handles:
            handle.remove()
        smallest = min(places for places, _, _ in layer_outputs)
        _, name, width = next(each for each in reversed(layer_outputs) if each[0] == smallest)
        return name, width, int(maps.shape[1])

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, ...] to features [n, map_width, ...]."""
        features: Tensor = self.network(pad_sides(x, self._multiple))
        return cut(features, x.shape[2:])

    @mixed_precision
    def embed(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, ...] to embeddings [n, width]: the mean over the places of the smallest map."""
        layer_outputs: list[Tensor] = []
        module = self.network.get_submodule(self._bottleneck)
        handle = module.register_forward_hook(lambda module, inputs, output: layer_outputs.append(output))
        try:
            self.network(pad_sides(x, self._multiple))
        finally:
            handle.remove()
        return layer_outputs[-1].flatten(2).mean(2)


def pad_sides(x: Tensor, multiple: int) -> Tensor:
    """Return maps [n, c, ...] with zeros at the end of each side, so that all sides are multiples."""
    behind = [-side % multiple for side in x.shape[2:]]
    return functional.pad(x, [pad for end in reversed(behind) for pad in (0, end)]) if any(behind) else x


def cut(x: Tensor, sides: Sequence[int]) -> Tensor:
    """Return the beginning of maps [n, c, ...] along each side."""
    for axis, side in enumerate(sides, start=2):
        x = x.narrow(axis, 0, side)
    return x


def checked_map_encoder(
    name: str, build: Callable[[], nn.Module], head: str | None, multiple: int, shape: tuple[int, ...]
) -> MapEncoder:
    """Return the encoder of a library's segmentation network, having seen that it gives a map of an image's size.

    Parameters
    ----------
    name : str
        How documents call it.
    build : callable
        Returns the network.
    head, multiple, shape
        As of `MapEncoder`.

    Raises
    ------
    AnchorageError
        NETWORK_UNUSABLE: it cannot be built for these images, or takes none.
    """
    sides = "×".join(map(str, shape[1:]))
    try:
        encoder = MapEncoder(build().eval(), head, multiple, shape)
        with torch.no_grad():
            output_shape = tuple(encoder(torch.zeros(1, *shape)).shape)
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError, ArithmeticError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        message = f"{name} cannot take images of {sides} pixels and {shape[0]} channels: {first[:200]}"
        raise AnchorageError(NETWORK_UNUSABLE, f"{message}; choose another network or size") from error
    if output_shape != (1, encoder.map_width, *shape[1:]):
        raise AnchorageError(NETWORK_UNUSABLE, f"{name} gives no map of the image's size; choose another network")
    return encoder.train()

"""Views of whole batches by named presets: plain, weak, strong, and Barlow's two (methods reference, 5.2; torch).

Every draw comes from an explicit generator and is made on the generator's device, so that a CPU generator gives the same views on any
device, and no view waits for a GPU that holds the images. Batches [b, channels, h, w] are uint8, or values in 0 … 1, and come back normalised,
float32, of the same shape but for `CroppedNatural`. A large batch costs much less per image than many small ones.

Natural, Cifar100, Svhn, Dermoscopy
    SemiFL's: flip (not on SVHN) and crop after padding by an eighth of the side (4 pixels at 32); strong: then RandAugment(n = 2, m = 10).
Resized*
    RSCFed's and SemiAnAgg's: enlarge (32 to 40, lesions 224 to 250), crop, flip; strong: RandAugment(3) of any magnitude and a grey
    square in front. Plain images are not enlarged.
RotatedDermoscopy
    Boxes of 40 % to 100 % of the area enlarged to the whole, mirrored both ways and turned by quarters; strong: then RandAugment(n = 2, m = 10).
CroppedNatural
    The TensorFlow tutorial's: three quarters of the side (24 of 32) at random, flip, contrast, each image standardised; its change of
    brightness is left out, because standardising undoes it. Plain images are cut from the middle.
Digits
    Shifts with a black background; strong: small turns and scales, contrast, brightness, and a cut-out square.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import radians

import torch
from torch import Tensor
from torch.nn import functional

from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.data.barlow import barlow_views
from anchorage.learning.data.geometry import (
    from_places,
    gather,
    identities,
    maybe_mirrored,
    pixel_places,
    resized_crop,
    shifts,
    to_device,
    uniform,
    warp,
    windows,
)
from anchorage.learning.data.rand_augment import RandAugment

Change = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, slots=True)
class Augmentation:
    """SemiFL's views, and what others have of them.

    Parameters
    ----------
    mean, std : tuple of float
        Of the channels of values in 0 … 1; grey images use the means of three.
    flip : bool
        Whether a mirrored image is still of its class.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool = True

    def side(self, image_size: int) -> int:
        """Return the side of a view of images of a side, pixels."""
        return image_size

    def normalise(self, values: Tensor) -> Tensor:
        """Return values in 0 … 1, or uint8, with about zero mean and unit variance."""
        mean, std = _normalisation(self.mean, self.std, values.shape[1], values.ndim, values.device)
        shades = fractions(values)
        # in place where the values are new: memory costs more than the sum
        return (shades - mean if shades is values else shades.sub_(mean)).div_(std)

    def plain(self, images: Tensor) -> Tensor:
        """Return images as they are tested."""
        return self.normalise(images)

    def weak(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Flip and crop, then normalise."""
        return self.normalise(self._move(images, generator))

    def strong(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment weakly, then strongly, then normalise."""
        return self.normalise(RandAugment(2)(fractions(self._move(images, generator)), generator))

    def with_masks(
        self, images: Tensor, masks: Tensor, generator: torch.Generator, *, strong: bool, unknown: int = UNKNOWN_PIXEL
    ) -> tuple[Tensor, Tensor]:
        """Return weak or strong views of images, and their masks, moved with them by the same draws.

        Parameters
        ----------
        images : Tensor, shape [b, channels, h, w]
            Images.
        masks : Tensor of integers, shape [b, h, w]
            Classes, or something else of each pixel. Each takes that of the nearest, and what comes from beyond the image, or is hidden, is not
            known.
        generator : torch.Generator
            Source of all draws, which goes on as after a view of the images alone.
        strong : bool
            Whether views are strong.
        unknown : int
            What pixels are that are not known.
        """
        before = generator.get_state()
        augmented = self.strong(images, generator) if strong else self.weak(images, generator)
        after = generator.get_state()
        generator.set_state(before)
        places = self.places(pixel_places(masks), generator, strong=strong)
        generator.set_state(after)
        return augmented, from_places(masks, places, unknown)

    def places(self, places: Tensor, generator: torch.Generator, *, strong: bool) -> Tensor:
        """Do what a view's draws do to where pixels come from, float32 [b, 3, h, w]; a class with `weak` or `strong` of its own has its own."""
        moved = self._move(places, generator)
        return RandAugment(2).places(moved, generator) if strong else moved

    def barlow(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return FedBarlow's two views, normalised."""
        first, second = barlow_views(fractions(images), generator)
        return self.normalise(first), self.normalise(second)

    def _move(self, images: Tensor, generator: torch.Generator) -> Tensor:
        count, _, height, width = images.shape
        _, rows = shifts(count, height, generator, images.device)
        _, columns = shifts(count, width, generator, images.device)
        return gather(images, rows, maybe_mirrored(columns, generator) if self.flip else columns)


class ResizedAugmentation(Augmentation):
    """Crops of enlarged images; strong views are drawn in front of that (SemiAnAgg)."""

    def strong(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment strongly, then weakly, then normalise."""
        changed = RandAugment(3, uniform=True, cut=True)(fractions(images), generator)
        return self.normalise(self._move(changed, generator))

    def places(self, places: Tensor, generator: torch.Generator, *, strong: bool) -> Tensor:
        """Move as `strong` and `weak` do."""
        changed = RandAugment(3, uniform=True, cut=True).places(places, generator) if strong else places
        return self._move(changed, generator)

    def _move(self, images: Tensor, generator: torch.Generator) -> Tensor:
        count, _, height, width = images.shape
        larger = [side * 250 // 224 if side >= 224 else side * 5 // 4 for side in (height, width)]
        values = functional.interpolate(fractions(images), larger, mode="bilinear", align_corners=False)
        rows = windows(count, height, larger[0], generator, images.device)
        columns = windows(count, width, larger[1], generator, images.device)
        return gather(values, rows, maybe_mirrored(columns, generator))


class RotatedAugmentation(Augmentation):
    """Resized crops in any of a square's eight positions, of what has no upper side (Perez et al. 2018, their crops and flips)."""

    def _move(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return resized_crop(fractions(images), generator, smallest=0.4, rotated=True)


class CroppedAugmentation(Augmentation):
    """Crops of three quarters of the side, each standardised by itself (TensorFlow's CIFAR-10 tutorial)."""

    def side(self, image_size: int) -> int:
        """Return three quarters of an image's side."""
        return image_size * 3 // 4

    def normalise(self, values: Tensor) -> Tensor:
        """Return every image with zero mean and unit variance; a flat one becomes 0."""
        values = fractions(values)
        mean = values.mean((1, 2, 3), keepdim=True)
        least = values.shape[1:].numel() ** -0.5 / 255
        return (values - mean) / values.std((1, 2, 3), correction=0, keepdim=True).clamp_min(least)

    def plain(self, images: Tensor) -> Tensor:
        """Return the middle of each image."""
        return self.normalise(self._middle(images))

    def weak(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Crop, flip and change the contrast, then standardise."""
        values = fractions(self._move(images, generator))
        factor = to_device(uniform(0.2, 1.8, (len(values), 1, 1, 1), generator), values.device)
        mean = values.mean((2, 3), keepdim=True)
        return self.normalise(mean + factor * (values - mean))

    def barlow(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return FedBarlow's two views of the middle."""
        return super().barlow(self._middle(images), generator)

    def _middle(self, images: Tensor) -> Tensor:
        side = self.side(images.shape[-1])
        start = (images.shape[-1] - side) // 2
        return images[..., start : start + side, start : start + side]

    def _move(self, images: Tensor, generator: torch.Generator) -> Tensor:
        count, size = len(images), images.shape[-1]
        rows, columns = (windows(count, self.side(size), size, generator, images.device) for _ in range(2))
        return gather(images, rows, maybe_mirrored(columns, generator))


class DigitsAugmentation(Augmentation):
    """What keeps a digit a digit, on a black background."""

    def strong(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Shift, turn, scale and fade gently, and cut a square out."""
        return self.normalise(_distort(fractions(self._move(images, generator)), generator))

    def places(self, places: Tensor, generator: torch.Generator, *, strong: bool) -> Tensor:
        """Move as `strong` and `weak` do."""
        moved = self._move(places, generator)
        return _distort(moved, generator, colours=False) if strong else moved

    def _move(self, images: Tensor, generator: torch.Generator) -> Tensor:
        count, _, height, width = images.shape
        down, rows = shifts(count, height, generator, images.device)
        right, columns = shifts(count, width, generator, images.device)
        return gather(images, rows, columns) * (down[:, None, :, None] & right[:, None, None, :])


@cache
def _normalisation(
    mean: tuple[float, ...], std: tuple[float, ...], channels: int, dimensions: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation [1, channels, 1, 1], or with one more dimension of volumes, on the device, where they stay."""
    both = torch.tensor((mean, std)).view(2, 1, -1, *[1] * (dimensions - 2))
    centre, spread = (both.mean(2, keepdim=True) if channels == 1 else both).to(device)
    return centre, spread


def fractions(images: Tensor) -> Tensor:
    """Return pixels of uint8 as values in 0 … 1, and such values as they are."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def levels(images: Tensor) -> Tensor:
    """Return pixels as views take them: of uint8 as they are, of uint16 as values in 0 … 1."""
    return images.float() / 65535 if images.dtype == torch.uint16 else images


def _distort(values: Tensor, generator: torch.Generator, *, colours: bool = True) -> Tensor:
    """Turn by up to 15°, scale by up to a tenth, change contrast by 30 % and brightness by 0.1, cut out a square of a quarter.

    Without `colours`, contrast and brightness are drawn and not changed.
    """
    count, _, height, width = values.shape
    device = values.device
    angle = uniform(-radians(15), radians(15), (count,), generator)
    scale = uniform(0.9, 1.1, (count,), generator)
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    matrices = identities(count, generator.device)
    matrices[:, 0, 0], matrices[:, 0, 1] = cosine, -sine
    matrices[:, 1, 0], matrices[:, 1, 1] = sine, cosine
    values = warp(values, to_device(matrices, device))
    gain = to_device(uniform(0.7, 1.3, (count, 1, 1, 1), generator), device)
    lift = to_device(uniform(-0.1, 0.1, (count, 1, 1, 1), generator), device)
    if colours:
        values = (values * gain + lift).clamp_(0, 1)
    rows, columns = (_within_cut(count, side, generator, device) for side in (height, width))
    return values.masked_fill(rows[:, None, :, None] & columns[:, None, None, :], 0.0)


def _within_cut(count: int, side: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw an interval of a quarter of the side per image; return bool [count, side]."""
    length = max(1, side // 4)
    start = windows(count, length, side, generator, device)[:, :1]
    place = torch.arange(side, device=device)
    return (place >= start) & (place < start + length)

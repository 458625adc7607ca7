"""Images as a network takes them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.learning.data.augmentation import Augmentation, fractions, levels
from anchorage.learning.data.stored_pictures import Pictures

if TYPE_CHECKING:
    from anchorage.learning.network import Network

Kind = Literal["learnt", "weak", "strong"]
"""A view of an image: as a supervised loss sees it, weakly or strongly augmented."""

_MASKS = 3
"""Dimensions of a batch of masks [b, H, W]."""

EVALUATION_BATCH = 256
"""Images per forward pass where nothing is learnt; part of what makes the same bytes."""


_VALUES_AHEAD = 1 << 21
"""Pixels times channels that are viewed at once: 8 MiB as float32."""


class Views:
    """Batches of one set of images: plain, weakly or strongly augmented, normalised.

    Parameters
    ----------
    images : Pictures, shape [n, channels, H, W]
        All images. Those in memory are kept on the device as they are; of those in a file a batch is read when it is asked for.
    augmentation : Augmentation
        What fits this kind of image.
    device : torch.device
        Where the network is.
    """

    def __init__(self, images: Pictures, augmentation: Augmentation, device: torch.device) -> None:
        self._augmentation = augmentation
        self._images = (
            torch.from_numpy(np.ascontiguousarray(images)).to(device) if isinstance(images, np.ndarray) else images
        )
        self.device = device

    def __len__(self) -> int:
        return len(self._images)

    def content(self) -> NDArray[Any]:
        """Return what tells these images from others: the images themselves, or the digests of the files of those that are not in memory."""
        return self._images.cpu().numpy() if isinstance(self._images, Tensor) else self._images.digests

    def unchanged(self, indices: Tensor) -> Tensor:
        """Return images on the device as they were decoded, uint8 [b, channels, H, W]; those of more levels as float32, 0 … 1."""
        if isinstance(self._images, Tensor):
            return levels(self._images[indices])
        return levels(torch.from_numpy(self._images.read(indices.cpu().numpy())).to(self.device))

    @property
    def ahead(self) -> int:
        """How many images to view at once where several batches are known: many small calls cost much more than one large one."""
        return _VALUES_AHEAD // math.prod(self._images.shape[1:]) if len(self) else 1

    @property
    def per_image(self) -> int:
        """How many views `with_labels` makes of an image."""
        return 1

    def plain(self, indices: Tensor) -> Tensor:
        """Return images float32 [b, channels, H, W] as they are."""
        return self.pixels(indices)

    def pixels(self, indices: Tensor) -> Tensor:
        """Return images float32 [b, channels, H, W] as they are, for another encoder than the model's."""
        return self._augmentation.plain(self.unchanged(indices))

    def learnt(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """Return images as a supervised loss sees them: weakly augmented, float32 [b, channels, H, W]."""
        return self.weak(indices, generator)

    def encoded_by(self, network: "Network") -> None:
        """Take note of the network that the views are for; only `anchorage.learning.encoded_views` asks."""

    def fractions(self, indices: Tensor) -> Tensor:
        """Return images float32 [b, channels, H, W] in 0 … 1, neither augmented nor normalised."""
        return fractions(self.unchanged(indices))

    def weak_mixture(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return weakly augmented mixtures of `fractions`, float32 [b, channels, H, W]."""
        return self._augmentation.weak(images, generator)

    def weak(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """Return weakly augmented images, float32 [b, channels, H, W]."""
        return self._augmentation.weak(self.unchanged(indices), generator)

    def strong(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """Return strongly augmented images, float32 [b, channels, H, W]."""
        return self._augmentation.strong(self.unchanged(indices), generator)

    def with_labels(
        self, kind: Kind, indices: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return views of images, float32 [b, channels, H, W], and their labels: masks, uint8 [b, H, W], move with the images."""
        if labels.ndim != _MASKS:
            views: Mapping[Kind, Callable[[Tensor, torch.Generator], Tensor]] = {
                "learnt": self.learnt,
                "weak": self.weak,
                "strong": self.strong,
            }
            return views[kind](indices, generator), labels
        return self._augmentation.with_masks(self.unchanged(indices), labels, generator, strong=kind == "strong")

    def with_places(
        self, kind: Literal["weak", "strong"], indices: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return views of images, float32 [b, channels, H, W], and where in its image each of their pixels comes from, int64 [b, H, W].

        That is row times width plus column, or -1 of what comes from beyond the image or is hidden. Draws are those of `with_labels`.
        """
        images = self.unchanged(indices)
        count, _, height, width = images.shape
        places = torch.arange(height * width, device=images.device).view(1, height, width).expand(count, -1, -1)
        return self._augmentation.with_masks(images, places, generator, strong=kind == "strong", unknown=-1)

    def barlow(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return FedBarlow's two views, float32 [b, channels, H, W] each."""
        return self._augmentation.barlow(self.unchanged(indices), generator)

    def to_device(self, indices: NDArray[np.int64]) -> Tensor:
        """Return indices as a tensor beside the images."""
        return torch.from_numpy(np.ascontiguousarray(indices)).to(self.device, non_blocking=True)

    def over(self, indices: NDArray[np.int64]) -> Iterator[Tensor]:
        """Yield indices in batches for evaluation, in order."""
        for start in range(0, len(indices), EVALUATION_BATCH):
            yield self.to_device(indices[start : start + EVALUATION_BATCH])

    def map_batches(self, indices: NDArray[np.int64], function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a function of a batch of indices to all of them, without gradients; results joined along the first axis."""
        with torch.no_grad():
            return torch.cat([function(batch) for batch in self.over(indices)])


class PlainViews(Views):
    """The images of other views as they are, in the place of weak and strong ones.

    Parameters
    ----------
    views : Views
        Of the same images.
    """

    def __init__(self, views: Views) -> None:
        self._views, self.device = views, views.device

    def __len__(self) -> int:
        return len(self._views)

    @property
    def ahead(self) -> int:
        """As of the other views."""
        return self._views.ahead

    def plain(self, indices: Tensor) -> Tensor:
        """Return images as they are, or their embeddings."""
        return self._views.plain(indices)

    def learnt(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """Return images as they are."""
        return self.plain(indices)

    def weak(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """Return images as they are."""
        return self.plain(indices)

    def strong(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """Return images as they are."""
        return self.plain(indices)


def group_batches(batches: Iterable[NDArray[np.int64]], most: int) -> Iterator[list[NDArray[np.int64]]]:
    """Put neighbouring batches together as long as they have at most so many images, or it is one batch."""
    group: list[NDArray[np.int64]] = []
    held = 0
    for batch in batches:
        if group and held + len(batch) > most:
            yield group
            group, held = [], 0
        group.append(batch)
        held += len(batch)
    if group:
        yield group


def epoch_batches(rng: np.random.Generator, count: int, size: int, smallest: int) -> Iterator[NDArray[np.int64]]:
    """Yield one epoch of shuffled batches of positions 0..count-1; the last partial batch is kept if it has `smallest` images."""
    order = rng.permutation(count)
    for start in range(0, count, size):
        if len(batch := order[start : start + size]) >= smallest:
            yield batch


def batches_per_epoch(count: int, size: int, smallest: int) -> int:
    """Return how many batches `epoch_batches` yields."""
    return count // size + (count % size >= smallest)

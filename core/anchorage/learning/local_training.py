"""The losses of labelled images, step by step; each generator yields a step's loss."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.learning.data.labels import Labels
from anchorage.learning.device_group import DeviceGroup
from anchorage.learning.draws import Draws, Place
from anchorage.learning.network import Network
from anchorage.learning.views import Kind, Views, batches_per_epoch, epoch_batches, group_batches

Loss = Callable[[Tensor, Tensor], Tensor]
"""Mean loss of the head's outputs [n, outputs] and labels [n, ...]."""

HeadLoss = Callable[[Network, Tensor, Tensor], Tensor]
"""Mean loss of a network's heads on representations [n, d] with labels [n]."""

Contrast = Callable[[Tensor, Tensor], Tensor]
"""What is added for images [n, channels, H, W] and their representations [n, d]."""


BATCHES = "batches"
"""Purpose of the generator that orders a party's images, and name of the stream of its batches."""

AUGMENTATION = "augmentation"


class Passes(Protocol):
    """What says how often, and in batches of which size, a silo goes over its images."""

    @property
    def epochs(self) -> int:
        """Passes."""
        ...

    @property
    def batch_size(self) -> int:
        """Images per step."""
        ...

    @property
    def steps(self) -> int | None:
        """Steps in place of whole passes."""
        ...


@dataclass(frozen=True)
class Batching:
    """Passes over images: `epochs`, or as many as `exactly` so many steps take; `size` images per step, batches below `smallest` are skipped."""

    epochs: int
    size: int
    smallest: int
    exactly: int | None = None

    @classmethod
    def of(cls, local: Passes, smallest: int) -> "Batching":
        """Take a method's local work."""
        return cls(local.epochs, local.batch_size, smallest, local.steps)

    def steps(self, count: int) -> int:
        """Return the steps over `count` images in all epochs; none where there is no batch."""
        once = self.in_pass(count)
        return self.epochs * once if self.exactly is None or not once else self.exactly

    def in_pass(self, count: int) -> int:
        """Return the steps of one pass over `count` images."""
        return batches_per_epoch(count, self.size, self.smallest)

    def positions(self, count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Yield shuffled positions 0..count-1, epoch by epoch; the last one may be cut short."""
        steps_left = self.steps(count)
        while steps_left:
            for batch in islice(epoch_batches(rng, count, self.size, self.smallest), steps_left):
                steps_left -= 1
                yield batch

    def rest(self, count: int, draws: Draws, stream: str = BATCHES) -> Iterator[NDArray[np.int64]]:
        """Yield those `positions` that no other process has taken, of the round's `Place`."""
        return draws.place.rest(stream, self.positions(count, draws.numpy(stream)))


@dataclass(frozen=True)
class Labelled:
    """Images that are trained on with the labels at hand.

    Parameters
    ----------
    views : Views
        All images of the party.
    indices : ndarray of int64, shape [n]
        Which of them.
    labels : ndarray, shape [n, ...]
        Their labels, true or accepted; all are known.
    unannotated : tuple of int
        As of `ImageSet`.
    """

    views: Views
    indices: NDArray[np.int64]
    labels: Labels
    unannotated: tuple[int, ...] = ()

    def batch(self, positions: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return indices, int64 [b], and labels, [b, ...], of some positions on the device."""
        return self.views.to_device(self.indices[positions]), self.views.to_device(self.labels[positions])

    def iterate_views(
        self, batches: Iterable[NDArray[np.int64]], *views: Callable[[Tensor], Tensor], place: Place | None = None
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield each batch's labels, [b, ...], and its views, float32 [b, channels, H, W] each; several batches are viewed at once.

        Parameters
        ----------
        batches : iterable of ndarray of int64
            Positions.
        views : callable
            Each makes a view of images by their indices.
        place : Place, optional
            Where to note that batches of the stream ``batches`` are taken.
        """
        return self._split(batches, lambda indices, labels: (labels, *(view(indices) for view in views)), place)

    def iterate_pairs(
        self, batches: Iterable[NDArray[np.int64]], kinds: Sequence[Kind], generator: torch.Generator, place: Place
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield each batch's labels and a view, float32 [b, channels, H, W], of one kind after the other; labels that are masks move with the view.

        Parameters as of `iterate_views`.
        """

        def view_kinds(indices: Tensor, labels: Tensor) -> Iterator[Tensor]:
            for kind in kinds:
                images, labels_of_view = self.views.with_labels(kind, indices, labels, generator)
                yield from (labels_of_view, images)

        return self._split(batches, view_kinds, place)

    def _split(
        self,
        batches: Iterable[NDArray[np.int64]],
        view_batch: Callable[[Tensor, Tensor], Iterable[Tensor]],
        place: Place | None,
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield each batch of what is seen of several at once, by their indices and labels."""
        for group in group_batches(batches, self.views.ahead):
            indices, labels = self.batch(np.concatenate(group))
            sizes = [len(batch) * self.views.per_image for batch in group]
            split = [torch.split(tensor, sizes) for tensor in view_batch(indices, labels)]
            for ahead, of_batch in zip(reversed(range(len(group))), zip(*split, strict=True), strict=True):
                if place is not None:
                    place.take(BATCHES, ahead)
                yield of_batch


def _first(views: Views, both_views: bool) -> Callable[[Tensor, torch.Generator], Tensor]:
    """Return what makes the first view of an image: a weak one where a strong one goes with it."""
    return views.weak if both_views else views.learnt


def labelled_losses(
    network: Network,
    data: Labelled,
    loss: Loss,
    batching: Batching,
    draws: Draws,
    *,
    both_views: bool,
    contrast: Contrast | None = None,
    devices: DeviceGroup,
) -> Iterator[Tensor]:
    """Yield the loss on images as a supervised loss sees them (FedAvg), or the mean over weak and strong views (FedAvg-Semi, SemiAnAgg).

    `contrast`, if given, is told the first views and their representations, and returns what is added (MOON). Each of `devices` learns its part.
    """
    augmentation = draws.place.track(AUGMENTATION, draws.torch(AUGMENTATION))
    kinds: Sequence[Kind] = ("weak", "strong") if both_views else ("learnt",)
    for batch in data.iterate_pairs(batching.rest(len(data.indices), draws), kinds, augmentation, draws.place):
        part = devices.part(len(batch[0]), batching.smallest)
        labels, images, *strong = part.of(*batch)
        z = network.represent(images)
        value = loss(network.classifier(z), labels)
        if contrast is not None:
            value = value + contrast(images, z)
        if strong:
            first_labels, other = strong
            value = (value + loss(network(other), first_labels)) / 2
        yield part.weigh(value)


def two_head_losses(
    network: Network,
    data: Labelled,
    loss: HeadLoss,
    batching: Batching,
    draws: Draws,
    *,
    both_views: bool,
    devices: DeviceGroup,
) -> Iterator[Tensor]:
    """Yield the loss of two heads on what a supervised loss sees, or its mean over weak and strong views; each of `devices` learns its part."""
    augmentation = draws.place.track(AUGMENTATION, draws.torch(AUGMENTATION))
    for positions in batching.rest(len(data.indices), draws):
        draws.place.take(BATCHES)
        indices, labels = data.batch(positions)
        views = [_first(data.views, both_views)(indices, augmentation)]
        if both_views:
            views.append(data.views.strong(indices, augmentation))
        part = devices.part(len(labels), batching.smallest)
        labels, images, *strong = part.of(labels, *views)
        value = loss(network, network.represent(images), labels)
        for other in strong:
            value = (value + loss(network, network.represent(other), labels)) / 2
        yield part.weigh(value)


def strong_losses(
    network: Network, data: Labelled, loss: Loss, batching: Batching, draws: Draws, devices: DeviceGroup | None = None
) -> Iterator[Tensor]:
    """Yield the loss on strong views: FedAnchor without mixup, and its server's epoch; each of `devices`, if given, learns its part."""
    devices = devices or DeviceGroup()
    augmentation = draws.place.track(AUGMENTATION, draws.torch(AUGMENTATION))
    batches = batching.rest(len(data.indices), draws)
    for batch in data.iterate_pairs(batches, ("strong",), augmentation, draws.place):
        part = devices.part(len(batch[0]), batching.smallest)
        labels, images = part.of(*batch)
        yield part.weigh(loss(network(images), labels))


def weak_losses(network: Network, data: Labelled, loss: Loss, batching: Batching, draws: Draws) -> Iterator[Tensor]:
    """Yield the loss on what a supervised loss sees, weak views: SemiFL's server (methods reference, 6.7)."""
    augmentation = draws.place.track(AUGMENTATION, draws.torch(AUGMENTATION))
    batches = batching.rest(len(data.indices), draws)
    for labels, images in data.iterate_pairs(batches, ("learnt",), augmentation, draws.place):
        yield loss(network(images), labels)

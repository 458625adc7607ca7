"""The losses of a silo's round, one generator per local objective; each yields a step's loss (METHODS.md 6.1, 6.5, 6.8, 6.9)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anchorage.api.method import Local, Mixup, Supervised
from anchorage.learning.draws import Draws
from anchorage.learning.flexmatch import Curriculum
from anchorage.learning.heads import personal_cross_entropy
from anchorage.learning.losses import balanced_softmax, log_prior, mixed_cross_entropy
from anchorage.learning.models import Network
from anchorage.learning.similarity import SimilaritySums
from anchorage.learning.views import Views, batches_per_epoch, epoch_batches, grouped


@dataclass(frozen=True)
class Batching:
    """Passes over images: `epochs`, `size` images per step, batches below `smallest` are skipped."""

    epochs: int
    size: int
    smallest: int

    @classmethod
    def of(cls, local: Local, smallest: int) -> "Batching":
        """Take a method's local work."""
        return cls(local.epochs, local.batch_size, smallest)

    def steps(self, count: int) -> int:
        """Return the steps over `count` images in all epochs."""
        return self.epochs * batches_per_epoch(count, self.size, self.smallest)

    def positions(self, count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Yield shuffled positions 0..count-1, epoch by epoch."""
        for _ in range(self.epochs):
            yield from epoch_batches(rng, count, self.size, self.smallest)


@dataclass(frozen=True)
class Labelled:
    """Images that are trained on with the labels at hand.

    Parameters
    ----------
    views : Views
        All images of the party.
    indices : ndarray of int64, shape [n]
        Which of them.
    labels : ndarray of int64, shape [n]
        Their classes, true or accepted.
    """

    views: Views
    indices: NDArray[np.int64]
    labels: NDArray[np.int64]

    def batch(self, positions: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return indices and labels of some positions on the device, int64 [b] each."""
        return self.views.to_device(self.indices[positions]), self.views.to_device(self.labels[positions])

    def viewed(
        self, batches: Iterable[NDArray[np.int64]], *views: Callable[[Tensor], Tensor]
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield each batch's labels, int64 [b], and its views, float32 [b, channels, H, W] each; several batches are viewed at once.

        Parameters
        ----------
        batches : iterable of ndarray of int64
            Positions.
        views : callable
            Each makes a view of images by their indices.
        """
        for group in grouped(batches, self.views.ahead):
            indices, labels = self.batch(np.concatenate(group))
            sizes = [len(batch) for batch in group]
            yield from zip(
                *(torch.split(seen, sizes) for seen in (labels, *(view(indices) for view in views))), strict=True
            )


class SupervisedLoss:
    """Cross entropy or balanced softmax over the party's own class counts.

    Parameters
    ----------
    supervised : Supervised
        Which one.
    data : Labelled
        Gives the counts.
    num_classes : int
        Classes C.
    """

    def __init__(self, supervised: Supervised, data: Labelled, num_classes: int) -> None:
        counts = torch.from_numpy(np.bincount(data.labels, minlength=num_classes))
        balanced = supervised.type == "BalancedSoftmax"
        self._prior = log_prior(counts.double()).float().to(data.views.device) if balanced else None

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of logits [n, C] and labels [n]."""
        return (
            functional.cross_entropy(logits, labels)
            if self._prior is None
            else balanced_softmax(logits, labels, self._prior)
        )


def supervised_losses(
    network: Network,
    data: Labelled,
    loss: SupervisedLoss,
    batching: Batching,
    draws: Draws,
    *,
    both_views: bool,
    contrast: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Iterator[Tensor]:
    """Yield the loss on weak views (FedAvg), or the mean over weak and strong views (FedAvg-Semi, SemiAnAgg).

    `contrast`, if given, is told the weak views and their representations, and returns what is added (MOON).
    """
    augmentation = draws.torch("augmentation")
    views = [lambda indices: data.views.weak(indices, augmentation)]
    if both_views:
        views.append(lambda indices: data.views.strong(indices, augmentation))
    for labels, images, *strong in data.viewed(batching.positions(len(data.indices), draws.numpy("batches")), *views):
        z = network.represent(images)
        value = loss(network.classifier(z), labels)
        if contrast is not None:
            value = value + contrast(images, z)
        for other in strong:
            value = (value + loss(network(other), labels)) / 2
        yield value


def strong_losses(network: Network, data: Labelled, batching: Batching, draws: Draws) -> Iterator[Tensor]:
    """Yield cross entropy on strong views: FedAnchor without mixup, and its server's epoch."""
    augmentation = draws.torch("augmentation")
    batches = batching.positions(len(data.indices), draws.numpy("batches"))
    for labels, images in data.viewed(batches, lambda indices: data.views.strong(indices, augmentation)):
        yield functional.cross_entropy(network(images), labels)


def weak_losses(network: Network, data: Labelled, batching: Batching, draws: Draws) -> Iterator[Tensor]:
    """Yield cross entropy on weak views: SemiFL's server (METHODS.md 6.7)."""
    augmentation = draws.torch("augmentation")
    batches = batching.positions(len(data.indices), draws.numpy("batches"))
    for labels, images in data.viewed(batches, lambda indices: data.views.weak(indices, augmentation)):
        yield functional.cross_entropy(network(images), labels)


def fix_mix_losses(
    network: Network, fix: Labelled, mix: Labelled, batching: Batching, mixup: Mixup, draws: Draws
) -> Iterator[Tensor]:
    """Yield L_fix + b L_mix (METHODS.md 6.8, eq. (7) to (9) of FedAnchor); each image is augmented, then mixed.

    Parameters
    ----------
    network : Network
        In train mode.
    fix : Labelled
        Images with accepted labels.
    mix : Labelled
        All images with their labels, accepted or not; as many as `fix` has are drawn with replacement.
    batching : Batching
        Over `fix`.
    mixup : Mixup
        Parameters of Beta and of the sum.
    draws : Draws
        Generators of the round.
    """
    augmentation = draws.torch("augmentation")
    shares, partners, order = draws.numpy("mixup"), draws.numpy("mix-set"), draws.numpy("batches")
    alpha, weight = float(mixup.alpha), float(mixup.weight)
    drawn = np.empty(0, np.int64)
    for epoch in range(batching.epochs):
        if epoch == 0 or mixup.redraw == "Epoch":
            drawn = partners.integers(0, len(mix.indices), len(fix.indices))
        drawn = partners.permutation(drawn)
        batches = list(epoch_batches(order, len(fix.indices), batching.size, batching.smallest))
        starts = accumulate((len(batch) for batch in batches), initial=0)
        others = [drawn[start : start + len(batch)] for start, batch in zip(starts, batches, strict=False)]
        fixed = fix.viewed(
            batches, lambda i: fix.views.strong(i, augmentation), lambda i: fix.views.weak(i, augmentation)
        )
        mixed = mix.viewed(others, lambda i: mix.views.weak(i, augmentation))
        for (labels, strong, weak), (other_labels, other) in zip(fixed, mixed, strict=True):
            share = float(shares.beta(alpha, alpha))
            loss = functional.cross_entropy(network(strong), labels)
            logits = network(share * weak + (1 - share) * other)
            yield loss + weight * mixed_cross_entropy(logits, labels, other_labels, share)


@dataclass(frozen=True)
class Unlabelled:
    """Images without labels and the frozen model that labels them (METHODS.md 6.9).

    Parameters
    ----------
    views : Views
        All images of the silo.
    indices : ndarray of int64, shape [n]
        Those without a label.
    received : Network
        The model as received, in eval mode.
    curriculum : Curriculum
        FlexMatch's counters over positions 0..n-1.
    anchor_features : Tensor of float32, shape [n, d], or None
        SemiAnAgg's features by the random anchor encoder.
    """

    views: Views
    indices: NDArray[np.int64]
    received: Network
    curriculum: Curriculum
    anchor_features: Tensor | None


class FlexMatchLosses:
    """Yields FlexMatch's losses and gathers what the round's announcement says of them.

    Parameters
    ----------
    network : Network
        The model in training.
    data : Unlabelled
        Images and who labels them.
    num_classes : int
        Classes C.
    dual : bool
        Whether a personal head learns the labels too (FedRoD Dual, METHODS.md 6.12).
    """

    def __init__(self, network: Network, data: Unlabelled, num_classes: int, *, dual: bool = False) -> None:
        self._network, self._data, self._num_classes, self._dual = network, data, num_classes, dual
        self.sums = SimilaritySums(num_classes, data.views.device)
        self._selected = torch.zeros((), dtype=torch.int64, device=data.views.device)

    @property
    def selected(self) -> int:
        """Images with confident pseudo-labels in the last epoch."""
        return int(self._selected)

    def losses(self, batching: Batching, draws: Draws) -> Iterator[Tensor]:
        """Yield the masked loss of each batch; sums and counts start anew in every epoch."""
        data = self._data
        augmentation = draws.torch("augmentation-unlabelled")
        order = draws.numpy("batches-unlabelled")
        for _ in range(batching.epochs):
            self.sums = SimilaritySums(self._num_classes, data.views.device)
            self._selected = torch.zeros_like(self._selected)
            for positions in epoch_batches(order, len(data.indices), batching.size, batching.smallest):
                yield self._loss(positions, augmentation)

    def _loss(self, positions: NDArray[np.int64], augmentation: torch.Generator) -> Tensor:
        data = self._data
        indices, places = data.views.to_device(data.indices[positions]), data.views.to_device(positions)
        with torch.no_grad():
            features = data.received.encoder(data.views.weak(indices, augmentation))
            confidence, labels = data.received.classifier(data.received.projection(features)).softmax(1).max(1)
            used, confident = data.curriculum.masks(confidence, labels)
            if data.anchor_features is not None:
                self.sums.add(data.anchor_features[places], features, labels, confident)
            data.curriculum.update(places, labels, confident)
            self._selected += confident.sum()
        z = self._network.represent(data.views.strong(indices, augmentation))
        logits = self._network.classifier(z)
        each = functional.cross_entropy(logits, labels, reduction="none")
        if self._dual:
            assert self._network.local is not None, "the network has a personal head"
            each = each + personal_cross_entropy(logits, self._network.local(z.detach()), labels)
        return (each * used).mean()

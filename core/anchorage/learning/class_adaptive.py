"""CBAFed's local work: images whose class clears its own threshold, or whose second guess is a rare class (METHODS.md 6.11)."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anchorage.learning.draws import Draws
from anchorage.learning.local_training import Batching
from anchorage.learning.models import Network
from anchorage.learning.views import Views, batches_per_epoch

UNUSED = -1
"""Label of an image that is not used."""


def adaptive_labels(probabilities: Tensor, thresholds: Tensor, rare: Tensor) -> Tensor:
    """Return the label of each image, int64 [n], `UNUSED` where it has none.

    Parameters
    ----------
    probabilities : Tensor of float, shape [n, C]
        Of the received model.
    thresholds : Tensor of float, shape [C]
        The most likely class is taken above its own one.
    rare : Tensor of bool, shape [C]
        Else the second most likely class is taken where it is one of these.
    """
    largest, guesses = probabilities.double().topk(2, dim=1)
    first, second = guesses[:, 0], guesses[:, 1]
    rest = torch.where(rare[second], second, UNUSED)
    return torch.where(largest[:, 0] > thresholds[first], first, rest)


class AdaptiveLosses:
    """Labels a silo's unlabelled images once with the received model, and yields one pass over those used, in their order.

    An image is trained on in the very view that it was labelled in; views are drawn again from the same generator, not stored.

    Parameters
    ----------
    network : Network
        The model, still as received when this is made.
    views : Views
        All images of the silo.
    indices : ndarray of int64, shape [n]
        Those without a label.
    thresholds, rare : Tensor
        As `adaptive_labels` takes them.
    draws : Draws
        Generators of the round.

    Attributes
    ----------
    used : ndarray of int64, shape [used]
        The labels in use.
    """

    def __init__(
        self,
        network: Network,
        views: Views,
        indices: NDArray[np.int64],
        thresholds: Tensor,
        rare: Tensor,
        draws: Draws,
    ) -> None:
        self._network, self._views, self._indices, self._draws = network, views, indices, draws
        labels = [torch.empty(0, dtype=torch.int64, device=views.device)]
        with torch.no_grad():
            labels += [adaptive_labels(network(x).softmax(1), thresholds, rare) for x in self._weak_views()]
        self._labels: NDArray[np.int64] = torch.cat(labels).cpu().numpy()
        self.used = self._labels[self._labels != UNUSED]

    def steps(self, batching: Batching) -> int:
        """Return how many losses there will be."""
        return batches_per_epoch(len(self.used), batching.size, batching.smallest)

    def losses(self, batching: Batching) -> Iterator[Tensor]:
        """Yield cross entropy on the used views, `batching.size` at a time; a last batch below `batching.smallest` is dropped."""
        images: list[Tensor] = []
        labels: list[Tensor] = []
        start = 0
        for weak in self._weak_views():
            found = self._labels[start : start + len(weak)]
            start += len(weak)
            places = np.flatnonzero(found != UNUSED)
            images.append(weak[self._views.to_device(places)])
            labels.append(self._views.to_device(found[places]))
            while sum(map(len, labels)) >= batching.size:
                x, y = torch.cat(images), torch.cat(labels)
                yield functional.cross_entropy(self._network(x[: batching.size]), y[: batching.size])
                images, labels = [x[batching.size :]], [y[batching.size :]]
        if sum(map(len, labels)) >= batching.smallest:
            yield functional.cross_entropy(self._network(torch.cat(images)), torch.cat(labels))

    def _weak_views(self) -> Iterator[Tensor]:
        augmentation = self._draws.torch("pseudo-labels")
        for batch in self._views.over(self._indices):
            yield self._views.weak(batch, augmentation)

"""Losses of a network with two heads: FedRoD's, and SSIL-CDM's, which is ACR at every silo (METHODS.md 6.12)."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anchorage.learning.draws import Draws
from anchorage.learning.heads import personal_cross_entropy
from anchorage.learning.local_training import Batching, Labelled, SupervisedLoss
from anchorage.learning.losses import balanced_softmax, log_prior
from anchorage.learning.models import Network
from anchorage.learning.views import Views

STRONGEST = 2.0
"""Tau_max, and tau of the balanced head: how strongly labels make up for class shares (ACR's public code)."""

KEPT_SHARE = 0.9
"""What a batch leaves of the estimate of the class shares."""

RAREST = 1e-6
"""Smallest share of a class in an estimate."""

Term = Callable[[Network, Tensor, Tensor], Tensor]
"""Mean loss of a network's heads on representations [n, d] with labels [n]."""


def personal_term(loss: SupervisedLoss) -> Term:
    """Return FedRoD's term: `loss` of the generic head, and cross entropy of both heads, of which the personal one learns (KAT N3)."""

    def term(network: Network, z: Tensor, labels: Tensor) -> Tensor:
        assert network.local is not None, "the network has a personal head"
        generic = network.classifier(z)
        return loss(generic, labels) + personal_cross_entropy(generic, network.local(z.detach()), labels).mean()

    return term


def balanced_term(data: Labelled, num_classes: int) -> Term:
    """Return ACR's term: cross entropy of the plain head, and of the balanced one shifted by the silo's own class shares."""
    counts = torch.from_numpy(np.bincount(data.labels, minlength=num_classes)).double()
    shift = (STRONGEST * log_prior(counts)).float().to(data.views.device)

    def term(network: Network, z: Tensor, labels: Tensor) -> Tensor:
        assert network.plain_head is not None, "the network has a plain head"
        return functional.cross_entropy(network.plain_head(z), labels) + balanced_softmax(
            network.classifier(z), labels, shift
        )

    return term


def two_head_losses(
    network: Network, data: Labelled, term: Term, batching: Batching, draws: Draws, *, both_views: bool
) -> Iterator[Tensor]:
    """Yield the term on weak views, or its mean over weak and strong views."""
    augmentation = draws.torch("augmentation")
    for positions in batching.positions(len(data.indices), draws.numpy("batches")):
        indices, labels = data.batch(positions)
        value = term(network, network.represent(data.views.weak(indices, augmentation)), labels)
        if both_views:
            strong = network.represent(data.views.strong(indices, augmentation))
            value = (value + term(network, strong, labels)) / 2
        yield value


def symmetric_divergences(prior: Tensor, estimate: Tensor) -> Tensor:
    """Return how far an estimate is from a prior, from the uniform shares, and from the reversed prior, [3] (KAT N2).

    Reversed: the most frequent class gets the share of the rarest, and so on.

    Parameters
    ----------
    prior, estimate : Tensor of float, shape [C]
        Shares of the classes, above 0.
    """
    order = prior.argsort(descending=True, stable=True)
    reverse = torch.empty_like(prior)
    reverse[order] = prior[order].flip(0)
    others = torch.stack([prior, torch.full_like(prior, 1 / len(prior)), reverse])
    return ((others - estimate) * (others.log() - estimate.log())).sum(1) / 2


def adaptive_strength(prior: Tensor, estimate: Tensor) -> Tensor:
    """Return tau, which is larger the less the estimate is like the prior, from 0 to `STRONGEST` (KAT N2)."""
    return STRONGEST * symmetric_divergences(prior, estimate).softmax(0)[0]


def moved_estimate(estimate: Tensor, labels: Tensor, confident: Tensor) -> Tensor:
    """Return the estimate of the class shares after a batch; the same one where no label was confident.

    Parameters
    ----------
    estimate : Tensor of float64, shape [C]
        Before the batch.
    labels : Tensor of int64, shape [n]
        The received model's labels.
    confident : Tensor of bool, shape [n]
        Those that count.
    """
    counts = torch.zeros_like(estimate).index_add(0, labels, confident.to(estimate.dtype))
    share = counts / counts.sum().clamp(min=1)
    moved = (KEPT_SHARE * estimate + (1 - KEPT_SHARE) * share).clamp(min=RAREST)
    return torch.where(counts.sum() > 0, moved, estimate)


class AdjustedLosses:
    """Yields the losses of unlabelled images whose labels make up for class shares.

    The plain head's outputs label a weak view for both heads, less `tau` times the logarithm of the shares for the plain head and less
    `STRONGEST` times it for the balanced one. Each head learns its label on two strong views where that label is confident, or else where the
    plain head is without the adjustment (plain), or the balanced head itself (balanced).

    Parameters
    ----------
    network : Network
        The model in training, which labels as well; in eval mode while it labels.
    received : Network
        The model as received, whose confident labels estimate the silo's class shares.
    views : Views
        All images of the silo.
    indices : ndarray of int64, shape [n]
        Those without a label.
    threshold : float
        A label is confident from this probability on.
    prior : Tensor of float64, shape [C], or None
        Shares that labels make up for; None: the estimate.
    estimate : Tensor of float64, shape [C]
        Estimate so far.
    """

    def __init__(
        self,
        network: Network,
        received: Network,
        views: Views,
        indices: NDArray[np.int64],
        threshold: float,
        prior: Tensor | None,
        estimate: Tensor,
    ) -> None:
        self._network, self._received, self._views, self._indices = network, received, views, indices
        self._threshold, self._prior, self.estimate = threshold, prior, estimate
        self._selected = torch.zeros((), dtype=torch.int64, device=views.device)

    @property
    def selected(self) -> int:
        """Images of the last epoch whose label the balanced head learnt."""
        return int(self._selected)

    def losses(self, batching: Batching, draws: Draws) -> Iterator[Tensor]:
        """Yield the loss of each batch; the count starts anew in every epoch."""
        augmentation = draws.torch("augmentation-unlabelled")
        once, order = Batching(1, batching.size, batching.smallest), draws.numpy("batches-unlabelled")
        for _ in range(batching.epochs):
            self._selected = torch.zeros_like(self._selected)
            for positions in once.positions(len(self._indices), order):
                indices = self._views.to_device(self._indices[positions])
                plain, balanced = self._label(self._views.weak(indices, augmentation))
                self._selected += balanced[1].sum()
                strong = [self._loss(self._views.strong(indices, augmentation), plain, balanced) for _ in range(2)]
                yield (strong[0] + strong[1]) / 2

    def _loss(self, images: Tensor, plain: tuple[Tensor, Tensor], balanced: tuple[Tensor, Tensor]) -> Tensor:
        network, z = self._network, self._network.represent(images)
        assert network.plain_head is not None, "the network has a plain head"
        first = functional.cross_entropy(network.plain_head(z), plain[0], reduction="none") * plain[1]
        second = functional.cross_entropy(network.classifier(z), balanced[0], reduction="none") * balanced[1]
        return (first + second).mean()

    def _label(self, weak: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return labels [n] and masks [n] for the plain and for the balanced head."""
        network = self._network
        assert network.plain_head is not None, "the network has a plain head"
        network.eval()
        try:
            with torch.no_grad():
                self.estimate = moved_estimate(self.estimate, *self._confident(self._received(weak)))
                prior = self.estimate if self._prior is None else self._prior
                shift = prior.log().float()
                z = network.represent(weak)
                plain = network.plain_head(z)
                tau = adaptive_strength(prior, self.estimate).float()
                label, sure = self._confident(plain - tau * shift)
                balanced_label, balanced_sure = self._confident(plain - STRONGEST * shift)
                return (
                    (label, sure | self._confident(plain)[1]),
                    (balanced_label, balanced_sure | self._confident(network.classifier(z))[1]),
                )
        finally:
            network.train()

    def _confident(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        confidence, labels = logits.softmax(1).max(1)
        return labels, confidence >= self._threshold

"""SSIL-CDM, which is ACR at every silo: a balanced head that is evaluated beside a plain one that labels (methods reference, 6.12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero, Fraction
from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.pieces.pseudo_labels.fixmatch import RAREST, FixMatch
from anchorage.pieces.second_head.beside_labels import BesideLabels

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.draws import Draws
    from anchorage.learning.local_training import Batching, HeadLoss, Labelled, Loss
    from anchorage.learning.model_hooks import TaskHooks
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.learning.views import Views

ESTIMATE = "shares/estimate"
"""Name of the estimate of the class shares in the silo's kept state, float64 [C]."""


_PLAIN = "plain_head"


@piece("balanced")
class Balanced(BesideLabels):
    """A balanced head, which is evaluated, and a plain head, which makes pseudo-labels (SSIL-CDM)."""

    tau_max: AboveZero = Field(
        "2",
        description="Maximum strength of the logit adjustment, which multiplies the logarithm of class shares (tau_max of ACR).",
    )
    estimate_decay: Fraction = Field(
        "0.9",
        description="Decay of the running estimate of a silo's class shares: the share of itself that it keeps per batch.",
    )

    def facts(self) -> frozenset[str]:
        """Say that labels may be adjusted, and that each head has its own loss."""
        return super().facts() | {Fact.BALANCED_HEAD, Fact.LABELS_UNREAD}

    def needs(self) -> Sequence[Need]:
        """Need FixMatch's labels."""
        message = (
            "found balanced without fixMatch, beside which alone it learns; set pseudoLabels: {fixMatch: {}}, "
            "or secondHead: {none: {}}"
        )
        return (*super().needs(), Need(Fact.FIX_MATCH, message))

    def add_heads(self, network: Network) -> None:
        """Add the plain head, of the classifier's shape; it travels."""
        from torch import nn

        network.add_head(_PLAIN, nn.Linear(network.linear.in_features, network.linear.out_features))

    def adopted(self, network: Network, loaded_names: frozenset[str]) -> None:
        """Begin the plain head as the classifier of the stage before: labels by an untrained head would ruin what was learnt."""
        if f"{_PLAIN}.weight" not in loaded_names:
            network.head(_PLAIN).load_state_dict(network.classifier.state_dict())

    def head_loss(self, loss: Loss, data: Labelled, task: TaskHooks) -> HeadLoss:
        """Return ACR's loss: cross entropy of the plain head, and of the balanced one shifted by the silo's own class shares."""
        import torch
        from torch.nn import functional

        from anchorage.algorithms.losses import balanced_softmax, log_prior

        counts = torch.from_numpy(np.bincount(data.labels, minlength=len(task.outputs))).double()
        shift = (float(self.tau_max) * log_prior(counts)).float().to(data.views.device)

        def term(network: Network, z: Tensor, labels: Tensor) -> Tensor:
            plain = functional.cross_entropy(network.head(_PLAIN)(z), labels)
            return plain + balanced_softmax(network.classifier(z), labels, shift)

        return term

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return the adjusted losses of unlabelled images beside those of labelled ones."""
        import torch

        from anchorage.learning.silo_round import Work

        images, pseudo, classes = silo_round.images, silo_round.method.pseudo_labels, silo_round.run.model.num_outputs
        if not len(images.unlabelled):
            return None
        assert isinstance(pseudo, FixMatch), "checked with the document"
        batching, device = silo_round.batching(), images.views.device
        start = silo_round.kept.get(ESTIMATE, np.full(classes, 1 / classes))
        losses = AdjustedLosses(
            self,
            silo_round.network,
            silo_round.copy_received(),
            silo_round.method.pseudo_labels.seen(silo_round),
            images.unlabelled,
            float(pseudo.threshold),
            pseudo.adjusted_shares(silo_round),
            torch.from_numpy(np.array(start)).to(device),
        )
        together, steps = silo_round.beside_labelled(losses.losses(batching, silo_round.draws), batching)
        return Work(
            together,
            steps,
            silo_round.counts(),
            lambda: len(losses.accepted),
            kept=lambda: {ESTIMATE: losses.estimate.cpu().numpy()},
            accepted=losses.accepted.labels,
        )


def symmetric_divergences(prior: Tensor, estimate: Tensor) -> Tensor:
    """Return how far an estimate is from a prior, from the uniform shares, and from the reversed prior, [3] (KAT N2).

    Reversed: the most frequent class gets the share of the rarest, and so on.

    Parameters
    ----------
    prior, estimate : Tensor of float, shape [C]
        Shares of the classes, above 0.
    """
    import torch

    order = prior.argsort(descending=True, stable=True)
    reverse = torch.empty_like(prior)
    reverse[order] = prior[order].flip(0)
    others = torch.stack([prior, torch.full_like(prior, 1 / len(prior)), reverse])
    return ((others - estimate) * (others.log() - estimate.log())).sum(1) / 2


def adaptive_strength(prior: Tensor, estimate: Tensor, tau_max: float) -> Tensor:
    """Return tau, which is larger the less the estimate is like the prior, from 0 to `tau_max` (KAT N2)."""
    return tau_max * symmetric_divergences(prior, estimate).softmax(0)[0]


def moved_estimate(estimate: Tensor, labels: Tensor, confident: Tensor, decay: float) -> Tensor:
    """Return the estimate of the class shares after a batch; the same one where no label was confident.

    Parameters
    ----------
    estimate : Tensor of float64, shape [C]
        Before the batch.
    labels : Tensor of int64, shape [n]
        The received model's labels.
    confident : Tensor of bool, shape [n]
        Those that count.
    decay : float
        Share of the estimate that stays.
    """
    import torch

    counts = torch.zeros_like(estimate).index_add(0, labels, confident.to(estimate.dtype))
    share = counts / counts.sum().clamp(min=1)
    moved = (decay * estimate + (1 - decay) * share).clamp(min=RAREST)
    return torch.where(counts.sum() > 0, moved, estimate)


class AdjustedLosses:
    """Yields the losses of unlabelled images whose labels make up for class shares.

    The plain head's outputs label a weak view for both heads, less `tau` times the logarithm of the shares for the plain head and less
    `tau_max` times it for the balanced one. Each head learns its label on two strong views where that label is confident, or else where the
    plain head is without the adjustment (plain), or the balanced head itself (balanced).

    Parameters
    ----------
    slot : Balanced
        Strength and decay.
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
        slot: Balanced,
        network: Network,
        received: Network,
        views: Views,
        indices: NDArray[np.int64],
        threshold: float,
        prior: Tensor | None,
        estimate: Tensor,
    ) -> None:
        from anchorage.algorithms.pseudo_labels import Accepted

        self._network, self._received, self._views, self._indices = network, received, views, indices
        self._strongest, self._decay = float(slot.tau_max), float(slot.estimate_decay)
        self._threshold, self._prior, self.estimate = threshold, prior, estimate
        self.accepted = Accepted()
        """Images of the last epoch whose label the balanced head learnt."""

    def losses(self, batching: Batching, draws: Draws) -> Iterator[Tensor]:
        """Yield the loss of each batch."""
        from anchorage.learning.local_training import Batching

        augmentation = draws.torch("augmentation-unlabelled")
        once, order = Batching(1, batching.size, batching.smallest), draws.numpy("batches-unlabelled")
        for _ in range(batching.epochs):
            self.accepted.begin()
            for positions in once.positions(len(self._indices), order):
                indices = self._views.to_device(self._indices[positions])
                plain, balanced = self._label(self._views.weak(indices, augmentation))
                self.accepted.add(indices, *balanced)
                strong = [self._loss(self._views.strong(indices, augmentation), plain, balanced) for _ in range(2)]
                yield (strong[0] + strong[1]) / 2

    def _loss(self, images: Tensor, plain: tuple[Tensor, Tensor], balanced: tuple[Tensor, Tensor]) -> Tensor:
        from torch.nn import functional

        network, z = self._network, self._network.represent(images)
        first = functional.cross_entropy(network.head(_PLAIN)(z), plain[0], reduction="none") * plain[1]
        second = functional.cross_entropy(network.classifier(z), balanced[0], reduction="none") * balanced[1]
        return (first + second).mean()

    def _label(self, weak: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return labels [n] and masks [n] for the plain and for the balanced head."""
        import torch

        network = self._network
        network.eval()
        try:
            with torch.no_grad():
                self.estimate = moved_estimate(self.estimate, *self._confident(self._received(weak)), self._decay)
                prior = self.estimate if self._prior is None else self._prior
                shift = prior.log().float()
                z = network.represent(weak)
                plain = network.head(_PLAIN)(z)
                tau = adaptive_strength(prior, self.estimate, self._strongest).float()
                label, sure = self._confident(plain - tau * shift)
                balanced_label, balanced_sure = self._confident(plain - self._strongest * shift)
                return (
                    (label, sure | self._confident(plain)[1]),
                    (balanced_label, balanced_sure | self._confident(network.classifier(z))[1]),
                )
        finally:
            network.train()

    def _confident(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        confidence, labels = logits.softmax(1).max(1)
        return labels, confidence >= self._threshold

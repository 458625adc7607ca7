"""FlexMatch: thresholds per class that follow how well each class is learnt, with labels by the received model (methods reference, 6.5, 6.9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.fact import Fact
from anchorage.api.piece import piece
from anchorage.pieces.pseudo_labels.by_confidence import ByConfidence

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.learning.draws import Draws
    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work

LATEST = "flexmatch/latest"
"""Name of the counters in the silo's kept state, int64 [n]."""


@piece("flexMatch")
class FlexMatch(ByConfidence):
    """FlexMatch: the received model labels weak views, above class thresholds that follow its learning status (Zhang et al. 2021)."""

    strong_views_too: ClassVar[bool] = True
    decays_classifier: ClassVar[bool] = False

    threshold: Fraction = Field(
        "0.95",
        description="Confidence (largest class probability) from which on a label counts for the learning status of its class. The "
        "threshold of a class follows this status, up to this confidence.",
    )
    curriculum: Literal["Persist", "Reset"] = Field(
        "Persist",
        description="Class counters at the start of a round. Persist: those of the silo's last round. Reset: new ones.",
    )

    def facts(self) -> frozenset[str]:
        """Say that a second head may learn these labels, and that features of the received model can be compared."""
        return frozenset({Fact.PSEUDO_LABELS, Fact.FLEX_MATCH, Fact.RECEIVED_FEATURES})

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return FlexMatch's losses beside those of labelled images."""
        from anchorage.learning.silo_round import Work

        images = silo_round.images
        if not len(images.unlabelled):
            return None
        classes = silo_round.run.model.num_outputs
        curriculum = Curriculum(self._latest(silo_round), classes, float(self.threshold), images.views.device)
        flexmatch = FlexMatchLosses(silo_round, silo_round.copy_received(), curriculum)
        batching = silo_round.batching()
        losses, steps = silo_round.beside_labelled(flexmatch.losses(batching, silo_round.draws), batching)
        persist = self.curriculum == "Persist"
        return Work(
            losses,
            steps,
            silo_round.counts(),
            lambda: len(flexmatch.accepted),
            kept=lambda: {LATEST: curriculum.latest.cpu().numpy()} if persist else {},
            accepted=flexmatch.accepted.labels,
        )

    def _latest(self, silo_round: SiloRound) -> NDArray[np.int64]:
        import torch

        count = len(silo_round.images.unlabelled)
        if self.curriculum == "Reset":
            return np.full(count, -1)
        if (previous_labels := silo_round.kept.get(LATEST)) is not None and len(previous_labels) == count:
            return previous_labels
        labels, confident = self.checked_labels(
            silo_round, silo_round.images.unlabelled
        )  # the first round starts from one pass
        return torch.where(confident, labels, -1).cpu().numpy()


class FlexMatchLosses:
    """Yields FlexMatch's losses and notes the confident labels of the last epoch (`accepted`).

    Parameters
    ----------
    silo_round : SiloRound
        The round.
    received : Network
        The model as received, frozen, in eval mode; it labels.
    curriculum : Curriculum
        Counters over the unlabelled images.
    """

    def __init__(self, silo_round: SiloRound, received: Network, curriculum: Curriculum) -> None:
        from anchorage.algorithms.pseudo_labels import Accepted

        self._network, self._views = silo_round.network, silo_round.images.views
        self._indices, self._listeners = silo_round.images.unlabelled, silo_round.listeners
        self._second_head = silo_round.method.second_head
        self._received, self._curriculum = received, curriculum
        self.accepted = Accepted()

    def losses(self, batching: Batching, draws: Draws) -> Iterator[Tensor]:
        """Yield the masked loss of each batch."""
        from anchorage.learning.views import epoch_batches

        augmentation = draws.torch("augmentation-unlabelled")
        order = draws.numpy("batches-unlabelled")
        for _ in range(batching.epochs):
            for part in self._listeners:
                part.epoch_begins()
            self.accepted.begin()
            for positions in epoch_batches(order, len(self._indices), batching.size, batching.smallest):
                yield self._loss(positions, augmentation)

    def _loss(self, positions: NDArray[np.int64], augmentation: torch.Generator) -> Tensor:
        import torch
        from torch.nn import functional

        views, received = self._views, self._received
        indices, places = views.to_device(self._indices[positions]), views.to_device(positions)
        with torch.no_grad():
            features = received.embed(views.weak(indices, augmentation))
            confidence, labels = received.classifier(received.projection(features)).softmax(1).max(1)
            used, confident = self._curriculum.masks(confidence, labels)
            for part in self._listeners:
                part.pseudo_labelled(indices, features, labels, confident)
            self._curriculum.update(places, labels, confident)
            self.accepted.add(indices, labels, confident)
        z = self._network.represent(views.strong(indices, augmentation))
        logits = self._network.classifier(z)
        each = functional.cross_entropy(logits, labels, reduction="none")
        personal = self._second_head.pseudo_label_loss(self._network, z, logits, labels)
        if personal is not None:
            each = each + personal
        return (each * used).mean()


def class_thresholds(counts: Tensor, total: int, threshold: float) -> Tensor:
    """Return the threshold of every class, ``tau * beta / (2 - beta)`` with the warm-up form of beta.

    Parameters
    ----------
    counts : Tensor of int64, shape [C]
        Images whose latest confident class is c.
    total : int
        All images; ``counts.sum()`` gives the form without warm-up.
    threshold : float
        Fixed threshold tau.

    Returns
    -------
    Tensor of float64, shape [C]
        All 0 before any image was confident.
    """
    import torch

    rest = total - counts.sum()
    beta = counts.double() / torch.maximum(counts.max(), rest).clamp(min=1)
    return threshold * beta / (2 - beta)


class Curriculum:
    """The latest class predicted with confidence at least tau, per image; -1 where there was none.

    Parameters
    ----------
    latest : ndarray of int64, shape [n]
        Where to start.
    num_classes : int
        Classes C.
    threshold : float
        Fixed threshold tau.
    device : torch.device
        Where predictions are made.
    """

    def __init__(self, latest: NDArray[np.int64], num_classes: int, threshold: float, device: torch.device) -> None:
        import torch

        self.threshold = threshold
        self.latest = torch.from_numpy(latest.copy()).to(device)
        self._classes = torch.arange(num_classes, device=device)
        self.counts = self._count(self.latest)

    def _count(self, latest: Tensor) -> Tensor:
        return (latest[:, None] == self._classes).sum(0)

    def masks(self, confidence: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return which images of a batch are trained on, and which are confident.

        Parameters
        ----------
        confidence : Tensor of float, shape [n]
            Largest probability.
        labels : Tensor of int64, shape [n]
            Its class.

        Returns
        -------
        used : Tensor of bool, shape [n]
            Confidence >= the class's threshold: enters the loss.
        confident : Tensor of bool, shape [n]
            Confidence >= tau: counts for the curriculum and as selected.
        """
        thresholds = class_thresholds(self.counts, len(self.latest), self.threshold)
        return confidence >= thresholds[labels].to(confidence.dtype), confidence >= self.threshold

    def update(self, indices: Tensor, labels: Tensor, confident: Tensor) -> None:
        """Take the confident predictions of a batch of different images over."""
        import torch

        before = self.latest[indices]
        after = torch.where(confident, labels, before)
        self.counts = self.counts + self._count(after) - self._count(before)
        self.latest[indices] = after

"""CBAFed: pseudo-labels accepted by thresholds per class (methods reference, 6.11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.pieces.pseudo_labels.by_confidence import ByConfidence
from anchorage.pieces.pseudo_labels.viewed import Viewed
from anchorage.pieces.silo_counts import sum_silo_counts
from anchorage.transport.messages import Announcement, AuxiliaryData

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.draws import Draws
    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.learning.views import Views

UNUSED = -1
"""Label of an image that is not used."""


@piece("classAdaptive")
class ClassAdaptive(Viewed, ByConfidence):
    """Labels above class thresholds that follow how often each class was used in the round before (CBAFed; Li et al. 2023)."""

    threshold: Fraction = Field(
        "0.84",
        description="Base of the class thresholds: the threshold of a class is the base plus the class's share of the images used in the "
        "round before, times C/10, minus the standard deviation of these shares.",
    )
    ceiling: Fraction = Field("0.95", description="Maximum threshold of a class.")
    rare_below: Fraction = Field(
        "0.03",
        description="Share of the images used, times C/10, below which a class is rare. An image whose most likely class is not accepted "
        "gets the second most likely one if that is rare. 0: none is.",
    )

    def needs(self) -> Sequence[Need]:
        """Need rounds."""
        return (previous_round(self.name),)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return thresholds and counts."""
        return (
            AuxiliaryArray("thresholds", "[C] float64", "threshold of every class"),
            AuxiliaryArray("rare", "[C] uint8", "whether a class is rare"),
            AuxiliaryArray("counts", "[C] int64", "the silo's labelled and accepted images per class", up=True),
        )

    def memory(self, task: Task, seed: int) -> ClassThresholds:
        """Remember the class counts of the round before."""
        return ClassThresholds(self, len(task.outputs))

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return a pass over labelled images, then one over the accepted ones; the class counts go to the server."""
        from anchorage.learning.silo_round import Work

        images, batching = silo_round.images, silo_round.batching(smallest=2)
        if not len(images.unlabelled):
            return None
        auxiliary_data = silo_round.auxiliary("thresholds", "rare")
        adaptive = AdaptiveLosses(
            silo_round.network,
            self.seen(silo_round),
            images.unlabelled,
            auxiliary_data["thresholds"],
            auxiliary_data["rare"].bool(),
            silo_round.draws,
        )
        known, used = images.labels[images.labelled], adaptive.used
        steps = batching.steps(len(known))
        losses = chain(silo_round.labelled_losses(batching) if steps else (), adaptive.losses(batching))
        counts = np.bincount(np.concatenate([known, used]), minlength=silo_round.run.model.num_outputs)
        return Work(
            losses,
            steps + adaptive.steps(batching),
            silo_round.counts(),
            lambda: len(used),
            lambda: {"counts": counts},
            accepted=lambda: (adaptive.used_images, used),
        )


def previous_round(name: str) -> Need:
    """Return the need of pseudo-labels by what the silos of the round before announced."""
    detail = f"found Asynchronous, but pseudoLabels {name} needs what all silos of the round before announced"
    message = f"{detail}; set Synchronous, or other pseudo-labels"
    return Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode"))


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
    import torch

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
    used_images : ndarray of int64, shape [used]
        Their images.
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
        import torch

        self._network, self._views, self._indices, self._draws = network, views, indices, draws
        labels = [torch.empty(0, dtype=torch.int64, device=views.device)]
        with torch.no_grad():
            labels += [adaptive_labels(network(x).softmax(1), thresholds, rare) for x in self._weak_views()]
        self._labels: NDArray[np.int64] = torch.cat(labels).cpu().numpy()
        self.used = self._labels[self._labels != UNUSED]
        self.used_images = indices[self._labels != UNUSED]

    def steps(self, batching: Batching) -> int:
        """Return how many losses there will be."""
        from anchorage.learning.views import batches_per_epoch

        return batches_per_epoch(len(self.used), batching.size, batching.smallest)

    def losses(self, batching: Batching) -> Iterator[Tensor]:
        """Yield cross entropy on the used views, `batching.size` at a time; a last batch below `batching.smallest` is dropped."""
        import torch
        from torch.nn import functional

        images: list[Tensor] = []
        labels: list[Tensor] = []
        start = 0
        for weak in self._weak_views():
            batch_labels = self._labels[start : start + len(weak)]
            start += len(weak)
            places = np.flatnonzero(batch_labels != UNUSED)
            images.append(weak[self._views.to_device(places)])
            labels.append(self._views.to_device(batch_labels[places]))
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


class ClassThresholds(RoundMemory):
    """CBAFed's thresholds per class, from how often every class was used in the round before (KAT-D1).

    Reads ``auxiliary_data["counts"]``, int64 of shape [C]: a silo's labelled and accepted images per class. Sends ``thresholds``, float64 [C], and
    ``rare``, uint8 [C]. Before the first counts every class has the same share.

    Parameters
    ----------
    slot : ClassAdaptive
        Threshold (base), ceiling, and the share below which a class is rare.
    num_classes : int
        Classes C.
    """

    def __init__(self, slot: ClassAdaptive, num_classes: int) -> None:
        self._base, self._ceiling = float(slot.threshold), float(slot.ceiling)
        self._rare_below = float(slot.rare_below)
        self._counts = np.zeros(num_classes, np.int64)

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the counts of this round; those of another shape or dtype, or negative ones, are left out."""
        self._counts = sum_silo_counts(announcements, "counts", self._counts.shape)

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return the thresholds and which classes are rare, the same for every silo."""
        share = scaled_shares(self._counts)
        return {
            "thresholds": class_thresholds(share, self._base, self._ceiling),
            "rare": (share < self._rare_below).astype(np.uint8),
        }

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts."""
        return {"counts": self._counts}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take counts that `state` returned."""
        self._counts = state["counts"].astype(np.int64)


def scaled_shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each class's share of the counts times C/10, float64 [C]: 0.1 is average whatever C is; 0.1 everywhere without any count."""
    total = counts.sum()
    if total == 0:
        return np.full(len(counts), 0.1)
    scaled: NDArray[np.float64] = counts / total * (len(counts) / 10)
    return scaled


def class_thresholds(share: NDArray[np.float64], base: float, ceiling: float) -> NDArray[np.float64]:
    """Return ``min(share + base - std(share), ceiling)``, float64 [C]; with the sample's deviation (reference, section 12, number 16)."""
    thresholds: NDArray[np.float64] = np.minimum(share + base - share.std(ddof=1), ceiling)
    return thresholds

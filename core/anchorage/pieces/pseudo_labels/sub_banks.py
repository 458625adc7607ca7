"""imFed-Semi: silos learn of which of their banks an image is, banks of different class shares (methods reference, N4).

The published code fills the banks by the true labels of unlabelled silos. Here a bank is the class that the first received model guessed, and
stays: side information that a silo has (the honest choice ``predicted`` of N4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.fact import Fact
from anchorage.api.piece import piece
from anchorage.pieces.pseudo_labels.viewed import Viewed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.learning.local_training import Batching
    from anchorage.learning.silo_round import SiloRound, Work

BANKS, SURE = "sub-banks/bank", "sub-banks/permanent"
"""In the silo's kept state, by image: its bank, int64 [n], and whether it ever was very confident, bool [n]."""

_SMALLEST = 1e-12


@piece("subBanks")
class SubBanks(Viewed):
    """Sub-banks of images by their first guessed class, which the model learns to tell apart (imFed-Semi).

    An image's bank is the class that the first model guessed.
    """

    threshold: Fraction = Field(
        "0.9",
        description="Confidence above which an image counts from then on for the class shares of the sub-banks.",
    )
    lowest: Fraction = Field("0.5", description="Confidence above which an image is trained on in a round.")
    division: Literal["Enabled", "Disabled"] = Field(
        "Disabled", description="Whether the class shares of a sub-bank are divided by those of the whole silo."
    )

    def facts(self) -> frozenset[str]:
        """Say that there are pseudo-labels, and that silos read no labels."""
        facts = {Fact.PSEUDO_LABELS, Fact.PSEUDO_LABELS_OF_ONE_HEAD, Fact.LABELS_UNREAD, Fact.LABELS_REPLACED}
        return frozenset(facts)

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the received model's labels of plain images, int64 [b], and whether they are very confident, bool [b]."""
        confidence, labels = self._probabilities(silo_round, indices).max(1)
        return labels, confidence > float(self.threshold)

    def _probabilities(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> Tensor:
        views, network = silo_round.images.views, silo_round.network
        return views.map_batches(indices, lambda i: network(views.plain(i)).softmax(1))

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of the images that are confident in this round; banks and estimates go on from round to round."""
        import torch

        from anchorage.learning.silo_round import Work

        train, previous_state, classes = silo_round.images.train, silo_round.kept, silo_round.run.model.num_outputs
        confidence, guesses = self._probabilities(silo_round, train).max(1)
        pseudo_labels = guesses.cpu().numpy()
        known = len(previous_state.get(BANKS, ())) == len(train)
        banks = previous_state[BANKS].copy() if known else pseudo_labels
        before = previous_state[SURE].astype(bool) if known else np.zeros(len(train), bool)
        now, sure = confident(confidence.double().cpu().numpy(), before, float(self.threshold), float(self.lowest))
        shares = class_shares(bank_counts(banks[now | sure], pseudo_labels[now | sure], (classes, classes)))
        sizes = np.bincount(banks, minlength=classes) / max(1, len(banks))
        if self.division == "Enabled":
            shares = divide_shares(shares, sizes)
        device = silo_round.images.views.device
        transition = torch.from_numpy(sizes[:, None] * shares).float().to(device)
        chosen, batching = np.flatnonzero(now), silo_round.batching()
        counts = {"train": len(train), "labelled": 0, "unlabelled": len(train)}
        return Work(
            self._losses(silo_round, train[chosen], banks[chosen], transition, batching),
            batching.steps(len(chosen)),
            counts,
            lambda: len(chosen),
            kept=lambda: {BANKS: banks, SURE: sure.astype(np.uint8)},
            accepted=lambda: (train[chosen], pseudo_labels[chosen]),
        )

    def _losses(
        self,
        silo_round: SiloRound,
        indices: NDArray[np.int64],
        banks: NDArray[np.int64],
        transition: Tensor,
        batching: Batching,
    ) -> Iterator[Tensor]:
        from anchorage.learning.local_training import Labelled

        draws, network, views = silo_round.draws, silo_round.network, self.seen(silo_round)
        augmentation = draws.torch("augmentation")
        data = Labelled(views, indices, banks)
        batches = batching.positions(len(indices), draws.numpy("batches"))
        for images_seen, bank_labels in data.iterate_views(batches, lambda chosen: views.weak(chosen, augmentation)):
            yield bank_loss(network(bank_labels).softmax(1), transition, images_seen)


def confident(
    confidence: NDArray[np.float64], before: NDArray[np.bool_], highest: float, lowest: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which images are confident in this round, and which ever were very confident, bool [n] each (equation N24).

    Parameters
    ----------
    confidence : ndarray of float64, shape [n]
        Of the received model.
    before : ndarray of bool, shape [n]
        Images that were very confident in a round before.
    highest, lowest : float
        Above which an image is very confident, and confident.
    """
    return confidence > lowest, before | (confidence > highest)


def bank_counts(banks: NDArray[np.int64], guesses: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.float64]:
    """Count confident images by bank and guessed class, int64 [n] each: float64 of the shape [banks, C]."""
    counts = np.zeros(shape)
    np.add.at(counts, (banks, guesses), 1)
    return counts


def class_shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each bank's class shares, float64 [banks, C]; zeros of a bank without confident images (equation N25)."""
    shares: NDArray[np.float64] = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shares


def divide_shares(shares: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return class shares of banks [banks, C] over those of all banks together; 0 of a class that no bank has."""
    prior = sizes @ shares
    return np.divide(shares, prior, out=np.zeros_like(shares), where=prior > 0)


def bank_posterior(probabilities: Tensor, transition: Tensor) -> Tensor:
    """Return the probabilities of banks, [n, banks] (equation N26).

    Parameters
    ----------
    probabilities : Tensor of float, shape [n, C]
        Of classes.
    transition : Tensor of float, shape [banks, C]
        Each bank's share of the images times its class shares.
    """
    bank_probabilities = probabilities @ transition.T
    return bank_probabilities / bank_probabilities.sum(1, keepdim=True).clamp(min=_SMALLEST)


def bank_loss(probabilities: Tensor, transition: Tensor, banks: Tensor) -> Tensor:
    """Return the mean of minus the logarithm of the probability of each image's own bank, int64 [n] (equation N27)."""
    true_bank = bank_posterior(probabilities, transition).gather(1, banks[:, None])
    return -true_bank.clamp(min=_SMALLEST).log().mean()

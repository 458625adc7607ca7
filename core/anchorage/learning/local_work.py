"""What a silo's round starts from, and what it consists of; `anchorage.learning.objectives` fills it for every local objective."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import RANDOM_ANCHOR_DIFFERS, SIDE_CHANNEL_MISSING
from anchorage.api.run import RunDescription
from anchorage.learning.device import placed
from anchorage.learning.draws import Draws
from anchorage.learning.local_training import Batching, Labelled, SupervisedLoss, supervised_losses
from anchorage.learning.models import Network
from anchorage.learning.pseudo_labels import accept, anchor_scores, class_prototypes, ensemble_scores, unit_rows
from anchorage.learning.similarity import build_random_anchor, fingerprint
from anchorage.learning.two_heads import balanced_term, personal_term, two_head_losses
from anchorage.learning.views import Views
from anchorage.transport.messages import SideChannel


@dataclass(frozen=True)
class Work:
    """A round's training, ready to run.

    Parameters
    ----------
    losses : iterator of Tensor
        A step's loss each, computed lazily.
    steps : int
        How many; 0 means that there is nothing to train on.
    samples : mapping of str to int
        For the announcement, all but ``selected``.
    selected : callable
        How many pseudo-labels were accepted, known after training.
    side : callable
        What is announced beside the update, known after training.
    kept : callable
        Arrays to keep for the next round.
    after_step : callable
        Called after every step of the optimiser.
    metrics : callable
        What people may want to see beside the loss, known after training.
    """

    losses: Iterator[Tensor]
    steps: int
    samples: Mapping[str, int]
    selected: Callable[[], int]
    side: Callable[[], SideChannel] = dict
    kept: Callable[[], Mapping[str, NDArray[Any]]] = dict
    after_step: Callable[[], None] = lambda: None
    metrics: Callable[[], Mapping[str, float]] = dict


class LocalImages:
    """A silo's images for training and for validation, and what is computed from them once.

    Parameters
    ----------
    views : Views
        All images.
    labels : ndarray of int64, shape [n]
        Classes, -1 without.
    train, validation : ndarray of int64
        Indices.
    """

    def __init__(
        self, views: Views, labels: NDArray[np.int64], train: NDArray[np.int64], validation: NDArray[np.int64]
    ) -> None:
        self.views, self.labels, self.train, self.validation = views, labels, train, validation
        self.labelled = train[labels[train] >= 0]
        self.unlabelled = train[labels[train] < 0]
        self._anchor: tuple[bytes, Tensor] | None = None

    def anchor_features(self, run: RunDescription, side: SideChannel) -> Tensor:
        """Return unit features of all images by the random anchor encoder, float32 [n, d]; computed once (METHODS.md 6.9).

        Raises
        ------
        AnchorageError
            The server's random anchor, whose SHA-256 it sends, is another one.
        """
        if self._anchor is None:
            number = run.method.weighting.anchor_seed
            encoder = build_random_anchor(run.model, run.seed, number)
            digest = fingerprint(encoder)
            placed(encoder, self.views.device)
            everything = np.arange(len(self.views))
            self._anchor = digest, unit_rows(self.views.mapped(everything, lambda i: encoder(self.views.plain(i))))
        digest, features = self._anchor
        sent = side.get("random_anchor")
        if sent is not None and sent.tobytes() != digest:
            message = f"SHA-256 of the weights is {digest.hex()} here and {sent.tobytes().hex()} at the server"
            raise AnchorageError(RANDOM_ANCHOR_DIFFERS, message)
        return features


@dataclass(frozen=True)
class RoundWork:
    """Prepares one round from the received model.

    Parameters
    ----------
    run : RunDescription
        Method and model.
    network : Network
        The model in training, still as received.
    images : LocalImages
        The silo's images.
    draws : Draws
        Generators of the round.
    side : SideChannel
        What came with the model.
    kept : mapping of str to ndarray
        What was kept from the rounds before.
    copy_received : callable
        Returns a frozen copy of the received model, in eval mode.
    received : mapping of str to ndarray
        Every tensor that came, those that are no part of the network included.
    """

    run: RunDescription
    network: Network
    images: LocalImages
    draws: Draws
    side: SideChannel
    kept: Mapping[str, NDArray[Any]]
    copy_received: Callable[[], Network]
    received: Mapping[str, NDArray[Any]]

    def label(self, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the received model's pseudo-labels of some images, int64 [b], and whether they are accepted, bool [b]."""
        pseudo, views = self.run.method.pseudo_labels, self.images.views
        threshold = float(pseudo.threshold)
        if pseudo.type == "AnchorSimilarity":
            return accept(self._anchor_scores(indices), threshold)
        if pseudo.type == "ReceivedModel":  # SemiFL labels weak views, in eval mode (METHODS.md 6.7)
            augmentation = self.draws.torch("pseudo-labels")
            probabilities = views.mapped(indices, lambda i: self.network(views.weak(i, augmentation)).softmax(1))
        else:
            probabilities = views.mapped(indices, lambda i: self.network(views.plain(i)).softmax(1))
        confidence, labels = probabilities.max(1)
        return labels, confidence >= threshold  # in the confidence's dtype (METHODS.md section 12, number 2)

    def _anchor_scores(self, indices: NDArray[np.int64]) -> Tensor:
        views, count = self.images.views, self.run.method.pseudo_labels.views
        prototypes, present = self._prototypes()
        if count == 1:
            return views.mapped(
                indices, lambda i: anchor_scores(self.network.anchor(views.plain(i)), prototypes, present)
            )
        augmentation = self.draws.torch("pseudo-labels")

        def scores(batch: Tensor) -> Tensor:
            seen = [self.network.anchor(views.weak(batch, augmentation)) for _ in range(count)]
            return ensemble_scores(torch.stack(seen), prototypes, present)

        return views.mapped(indices, scores)

    def _prototypes(self) -> tuple[Tensor, Tensor]:
        raw = self.run.method.pseudo_labels.anchors == "Raw"
        if raw:
            side = self.received_side("anchors", "anchor_labels")
            return class_prototypes(side["anchors"], side["anchor_labels"], self.run.model.num_classes)
        prototypes = self.received_side("prototypes")["prototypes"]
        return prototypes.nan_to_num(), ~prototypes.isnan().any(1)

    def batching(self, smallest: int = 1) -> Batching:
        """Return the passes of this silo; batches below `smallest`, or that a batch normalisation cannot take, are skipped."""
        local = self.run.method.local.of(labelled=len(self.images.labelled) > 0)
        return Batching.of(local, max(smallest, self.network.smallest_batch(self.run.model.image_size)))

    def labelled(self) -> tuple[Labelled, SupervisedLoss]:
        """Return the images with labels, and the loss on them."""
        indices = self.images.labelled
        data = Labelled(self.images.views, indices, self.images.labels[indices])
        return data, SupervisedLoss(self.run.method.supervised, data, self.run.model.num_classes)

    def supervised_losses(
        self, batching: Batching, contrast: Callable[[Tensor, Tensor], Tensor] | None = None
    ) -> Iterator[Tensor]:
        """Yield the loss on labelled images, step by step; see `local_training.supervised_losses`."""
        data, loss = self.labelled()
        both_views = self.run.method.pseudo_labels.type == "FlexMatch"
        second = self.run.method.heads.second
        if second != "None":
            balanced = second == "Balanced"
            term = balanced_term(data, self.run.model.num_classes) if balanced else personal_term(loss)
            return two_head_losses(self.network, data, term, batching, self.draws, both_views=both_views)
        return supervised_losses(
            self.network, data, loss, batching, self.draws, both_views=both_views, contrast=contrast
        )

    def received_side(self, *names: str) -> Mapping[str, Tensor]:
        """Return arrays of the task's side channel as tensors beside the images.

        Raises
        ------
        AnchorageError
            One is missing.
        """
        if missing := [n for n in names if n not in self.side]:
            found = f"the task of round {self.draws.round} came without {missing[0]}"
            raise AnchorageError(SIDE_CHANNEL_MISSING, found)
        return {n: torch.from_numpy(np.array(self.side[n])).to(self.images.views.device) for n in names}

    def counts(self) -> Mapping[str, int]:
        """Return the announcement's counts of a silo that trains on all its images."""
        labelled, unlabelled = len(self.images.labelled), len(self.images.unlabelled)
        return {"train": labelled + unlabelled, "labelled": labelled, "unlabelled": unlabelled}

    def label_counts(self) -> SideChannel:
        """Return the silo's labelled images per class for the server, int64 [C], where silos are told the shares of all labels."""
        if self.run.method.pseudo_labels.adjustment != "Labelled":
            return {}
        known = self.images.labels[self.images.labelled]
        return {"label_counts": np.bincount(known, minlength=self.run.model.num_classes)}

    def beside_labelled(self, losses: Iterator[Tensor], batching: Batching) -> tuple[Iterator[Tensor], int]:
        """Add the supervised loss to each step of the unlabelled images' losses; the shorter of the two starts again or is done."""
        labelled = batching.steps(len(self.images.labelled))
        steps = max(batching.steps(len(self.images.unlabelled)), labelled)
        return (self._together(self._cycled(steps), losses) if labelled else losses), steps

    def _cycled(self, steps: int) -> Iterator[Tensor]:
        batching = self.batching()
        once = batching.steps(len(self.images.labelled)) // batching.epochs
        enough = Batching(-(-steps // once), batching.size, batching.smallest)
        return islice(self.supervised_losses(enough), steps)

    @staticmethod
    def _together(labelled: Iterator[Tensor], unlabelled: Iterator[Tensor]) -> Iterator[Tensor]:
        for known, guessed in zip_longest(labelled, unlabelled):
            yield known if guessed is None else known + guessed

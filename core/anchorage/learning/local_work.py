"""What a silo's round consists of: who labels which images, which losses follow, and what is said of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.errors import AnchorageError
from anchorage.errors.learning import RANDOM_ANCHOR_DIFFERS, SIDE_CHANNEL_MISSING
from anchorage.learning.class_adaptive import AdaptiveLosses
from anchorage.learning.consistency import ConsistencyLosses
from anchorage.learning.contrast_models import ModelContrast, kept_models, previous_models
from anchorage.learning.draws import Draws
from anchorage.learning.flexmatch import Curriculum
from anchorage.learning.local_training import (
    Batching,
    FlexMatchLosses,
    Labelled,
    SupervisedLoss,
    Unlabelled,
    fix_mix_losses,
    strong_losses,
    supervised_losses,
)
from anchorage.learning.models import Network
from anchorage.learning.pseudo_labels import accept, anchor_scores, class_prototypes, ensemble_scores, unit_rows
from anchorage.learning.similarity import SimilaritySums, build_random_anchor, fingerprint
from anchorage.learning.views import Views
from anchorage.learning.weights import load_arrays
from anchorage.messages import SideChannel
from anchorage.spec.run import RunDescription

LATEST = "flexmatch/latest"
"""Name of FlexMatch's counters in the silo's kept state, int64 [n]."""


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
        Accepted pseudo-labels, known after training.
    similarity : callable
        SemiAnAgg's mean cosine per class, float64 [C], known after training.
    kept : callable
        Arrays to keep for the next round.
    counts : ndarray of int64, shape [C], or None
        ClassAdaptive: labelled and accepted images per class.
    """

    losses: Iterator[Tensor]
    steps: int
    samples: Mapping[str, int]
    selected: Callable[[], int]
    similarity: Callable[[], NDArray[np.float64]]
    kept: Callable[[], Mapping[str, NDArray[Any]]] = dict
    counts: NDArray[np.int64] | None = None


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
            encoder = build_random_anchor(run.model.name, run.model.channels, run.seed)
            digest = fingerprint(encoder)
            encoder.to(self.views.device)
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
    """

    run: RunDescription
    network: Network
    images: LocalImages
    draws: Draws
    side: SideChannel
    kept: Mapping[str, NDArray[Any]]
    copy_received: Callable[[], Network]

    def prepare(self) -> Work:
        """Return the method's work for these images."""
        kind = self.run.method.pseudo_labels.type
        if kind in ("AnchorSimilarity", "ReceivedModel"):
            return self._by_fixed_labels()
        if kind == "None" or not len(self.images.unlabelled):
            return self._supervised()
        if kind == "ClassAdaptive":
            return self._by_class_thresholds()
        return self._by_flexmatch() if kind == "FlexMatch" else self._by_consistency()

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
        return labels, confidence.double() >= threshold

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
            side = self._side("anchors", "anchor_labels")
            return class_prototypes(side["anchors"], side["anchor_labels"], self.run.model.num_classes)
        prototypes = self._side("prototypes")["prototypes"]
        return prototypes.nan_to_num(), ~prototypes.isnan().any(1)

    def _batching(self, smallest: int = 1) -> Batching:
        local = self.run.method.local.of(labelled=len(self.images.labelled) > 0)
        return Batching.of(local, max(smallest, self.network.smallest_batch(self.run.model.image_size)))

    def _no_similarity(self) -> NDArray[np.float64]:
        return np.full(self.run.model.num_classes, np.nan)

    def _labelled(self) -> tuple[Labelled, SupervisedLoss]:
        indices = self.images.labelled
        data = Labelled(self.images.views, indices, self.images.labels[indices])
        return data, SupervisedLoss(self.run.method.supervised, data, self.run.model.num_classes)

    def _supervised_losses(
        self, batching: Batching, contrast: Callable[[Tensor, Tensor], Tensor] | None = None
    ) -> Iterator[Tensor]:
        data, loss = self._labelled()
        both_views = self.run.method.pseudo_labels.type == "FlexMatch"
        return supervised_losses(
            self.network, data, loss, batching, self.draws, both_views=both_views, contrast=contrast
        )

    def _supervised(self) -> Work:
        batching, count = self._batching(), len(self.images.labelled)
        steps = batching.steps(count)
        samples = {"train": count, "labelled": count, "unlabelled": len(self.images.unlabelled)}
        if not steps:
            return Work(iter(()), 0, samples, lambda: 0, self._no_similarity)
        if self.run.method.regulariser.type in ("Moon", "FeatureDistance"):
            losses, kept = self._contrasted(batching)
        else:
            losses, kept = self._supervised_losses(batching), dict
        return Work(losses, steps, samples, lambda: 0, self._no_similarity, kept)

    def _contrasted(self, batching: Batching) -> tuple[Iterator[Tensor], Callable[[], Mapping[str, NDArray[Any]]]]:
        """Return MOON's losses, and what it keeps: the silo's last models."""
        regulariser = self.run.method.regulariser
        if regulariser.type == "FeatureDistance":
            return self._supervised_losses(batching, ModelContrast(regulariser, self.copy_received(), ())), dict
        earlier = previous_models(self.kept, regulariser.previous_models)
        previous = [self.copy_received() for _ in earlier]
        for network, arrays in zip(previous, earlier, strict=True):
            load_arrays(network, arrays)
        contrast = ModelContrast(regulariser, self.copy_received(), previous)
        recent = earlier[: regulariser.previous_models - 1]
        return self._supervised_losses(batching, contrast), lambda: kept_models(self.network, recent)

    def _by_fixed_labels(self) -> Work:
        images, method = self.images, self.run.method
        labels, accepted = self.label(images.train)
        similarity = self._anchor_similarity(labels, accepted) if method.weighting.type == "SemiAnAgg" else None
        chosen, all_labels = accepted.cpu().numpy(), labels.cpu().numpy()
        fix = Labelled(images.views, images.train[chosen], all_labels[chosen])
        mix = Labelled(images.views, images.train, all_labels)
        batching = self._batching(smallest=2)
        if method.mixup.at in ("Client", "Both"):
            losses = fix_mix_losses(self.network, fix, mix, batching, method.mixup, self.draws)
        else:
            losses = strong_losses(self.network, fix, batching, self.draws)
        samples = {"train": len(images.train), "labelled": 0, "unlabelled": len(images.train)}
        return Work(
            losses,
            batching.steps(len(fix.indices)),
            samples,
            lambda: len(fix.indices),
            lambda: self._no_similarity() if similarity is None else similarity.means(),
        )

    def _anchor_similarity(self, labels: Tensor, accepted: Tensor) -> SimilaritySums:
        images, views = self.images, self.images.views
        sums = SimilaritySums(self.run.model.num_classes, views.device)
        features = views.mapped(images.train, lambda i: self.network.encoder(views.plain(i)))
        anchors = images.anchor_features(self.run, self.side)[views.to_device(images.train)]
        sums.add(anchors, features, labels, accepted)
        return sums

    def _by_flexmatch(self) -> Work:
        images, pseudo = self.images, self.run.method.pseudo_labels
        classes = self.run.model.num_classes
        curriculum = Curriculum(self._latest(), classes, float(pseudo.threshold), images.views.device)
        wanted = self.run.method.weighting.type == "SemiAnAgg"
        features = images.anchor_features(self.run, self.side)[images.unlabelled] if wanted else None
        data = Unlabelled(images.views, images.unlabelled, self.copy_received(), curriculum, features)
        flexmatch = FlexMatchLosses(self.network, data, classes)
        batching = self._batching()
        losses, steps = self._beside_labelled(flexmatch.losses(batching, self.draws), batching)
        persist = pseudo.flex_state == "Persist"
        return Work(
            losses,
            steps,
            self._counts(),
            lambda: flexmatch.selected,
            lambda: flexmatch.sums.means() if wanted else self._no_similarity(),
            lambda: {LATEST: curriculum.latest.cpu().numpy()} if persist else {},
        )

    def _by_consistency(self) -> Work:
        images, batching = self.images, self._batching()
        consistency = ConsistencyLosses(self.network, images.views, images.unlabelled, self.run.method.pseudo_labels)
        losses, steps = self._beside_labelled(consistency.losses(batching, self.draws), batching)
        return Work(losses, steps, self._counts(), lambda: consistency.selected, self._no_similarity)

    def _by_class_thresholds(self) -> Work:
        images, batching, side = self.images, self._batching(smallest=2), self._side("thresholds", "rare")
        adaptive = AdaptiveLosses(
            self.network, images.views, images.unlabelled, side["thresholds"], side["rare"].bool(), self.draws
        )
        known, used = images.labels[images.labelled], adaptive.used
        steps = batching.steps(len(known))
        losses = chain(self._supervised_losses(batching) if steps else (), adaptive.losses(batching))
        counts = np.bincount(np.concatenate([known, used]), minlength=self.run.model.num_classes)
        return Work(
            losses,
            steps + adaptive.steps(batching),
            self._counts(),
            lambda: len(used),
            self._no_similarity,
            counts=counts,
        )

    def _side(self, *names: str) -> Mapping[str, Tensor]:
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

    def _counts(self) -> Mapping[str, int]:
        labelled, unlabelled = len(self.images.labelled), len(self.images.unlabelled)
        return {"train": labelled + unlabelled, "labelled": labelled, "unlabelled": unlabelled}

    def _beside_labelled(self, losses: Iterator[Tensor], batching: Batching) -> tuple[Iterator[Tensor], int]:
        """Add the supervised loss to each step of the unlabelled images' losses; the shorter of the two starts again or is done."""
        labelled = batching.steps(len(self.images.labelled))
        steps = max(batching.steps(len(self.images.unlabelled)), labelled)
        return (self._together(self._cycled(steps), losses) if labelled else losses), steps

    def _latest(self) -> NDArray[np.int64]:
        count = len(self.images.unlabelled)
        if self.run.method.pseudo_labels.flex_state == "Reset":
            return np.full(count, -1)
        if (kept := self.kept.get(LATEST)) is not None and len(kept) == count:
            return kept
        labels, confident = self.label(self.images.unlabelled)  # the first round starts from one pass (METHODS.md 6.5)
        return torch.where(confident, labels, -1).cpu().numpy()

    def _cycled(self, steps: int) -> Iterator[Tensor]:
        batching = self._batching()
        once = batching.steps(len(self.images.labelled)) // batching.epochs
        enough = Batching(-(-steps // once), batching.size, batching.smallest)
        return islice(self._supervised_losses(enough), steps)

    @staticmethod
    def _together(labelled: Iterator[Tensor], unlabelled: Iterator[Tensor]) -> Iterator[Tensor]:
        for known, guessed in zip_longest(labelled, unlabelled):
            yield known if guessed is None else known + guessed

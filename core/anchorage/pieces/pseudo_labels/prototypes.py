"""ProtoFSSL: classes are told by the distance to class means, and other silos' class means label (methods reference, N6: N34, N35)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import PositiveDecimal
from anchorage.api.fact import Fact
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.engine.aggregation.single_tensors import with_tensors
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.pseudo_labels.class_adaptive import previous_round
from anchorage.pieces.slots import PseudoLabels
from anchorage.transport.messages import Announcement, AuxiliaryData
from anchorage.transport.tensors.large_arrays import LargeArrays, split_large

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.transport.tensors.chunks import ChunkSource
    from anchorage.transport.tensors.model import ModelBytes

MEANS, HELPERS = "class_means", "helper_class_means"
WEIGHT, BIAS = "classifier.weight", "classifier.bias"
SUPPORT, QUERY = 1, 2
"""Labelled images of a class that make its mean in a step, and others of it that are told by it."""
TEMPERATURE = 0.5
"""Of labels by class means; below 1 sharpens."""
LARGEST = 1e6
"""Largest magnitude of a feature that a silo may tell: sums of its square stay finite as float32."""


@piece("prototypes")
class Prototypes(PseudoLabels):
    """Labels by the distance to class means of features (ProtoFSSL).

    A silo's images are nearest to the class means of its own labelled images; those without a label are taught what the class means of the
    silos of the round before say of them.
    """

    weight: PositiveDecimal = Field("0.3", description="Factor of the loss on unlabelled images.")

    def facts(self) -> frozenset[str]:
        """Say that there are pseudo-labels, that the loss on labels is this piece's own, and what the classifier is."""
        return frozenset(
            {Fact.PSEUDO_LABELS, Fact.PSEUDO_LABELS_OF_ONE_HEAD, Fact.LABELS_UNREAD, Fact.CLASSIFIER_OF_CLASS_MEANS}
        )

    def needs(self) -> Sequence[Need]:
        """Need rounds, and an encoder that trains, for nothing else does."""
        frozen = "found prototypes, which trains the encoder, but model.trainable freezes it; set All"
        return (previous_round(self.name), Need(Fact.FROZEN_PARTS, frozen, refused=True))

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the class means."""
        of = "mean feature of the labelled images of each class, NaN without any"
        return (
            AuxiliaryArray(MEANS, "[C, d] float32", f"the silo's {of}", up=True),
            AuxiliaryArray(HELPERS, "[H, C, d] float32", f"{of}, by each silo of the round before"),
        )

    def add_heads(self, network: Network) -> None:
        """Give the classifier a bias, without which it cannot tell distances."""
        from torch import nn

        linear = network.linear
        if "bias" not in dict(linear.named_parameters()):
            network.classifier = nn.Linear(linear.in_features, linear.out_features)

    def memory(self, task: Task, seed: int) -> LastClassMeans:
        """Remember the class means of the last round."""
        return LastClassMeans(len(task.outputs))

    def refine(
        self,
        mean: ModelBytes,
        updates: Sequence[ChunkSource],
        weights: Sequence[float],
        announcements: Sequence[Announcement],
    ) -> ModelBytes:
        """Have the classifier tell classes by the distance to the mean of the silos' class means."""
        shape = mean.layout.by_name[WEIGHT].shape
        silo_means = [
            means for a in announcements if (means := sound(a, shape[0])) is not None and means.shape == shape
        ]
        if not silo_means:
            return mean
        weight, bias = classifier_of(mean_of_known(np.stack(silo_means).astype(np.float64)))
        by_name = mean.layout.by_name
        return with_tensors(mean, {by_name[WEIGHT]: weight.ravel(), by_name[BIAS]: bias})

    def begin(self, silo_round: SiloRound) -> ClassMeans:
        """Tell the class means after training."""
        return ClassMeans(silo_round)

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the received model's labels of plain images, int64 [b], all of which are accepted."""
        import torch

        views, network = silo_round.images.views, silo_round.network
        labels = views.map_batches(indices, lambda i: network(views.plain(i))).argmax(1)
        return labels, torch.ones_like(labels, dtype=torch.bool)

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of the silo's episodes: one for each batch of images without a label, of labelled ones where there are no others."""
        from anchorage.learning.silo_round import Work

        images, batching = silo_round.images, silo_round.batching()
        episodes = Episodes(silo_round, float(self.weight))
        steps = batching.steps(len(images.unlabelled) or len(images.labelled)) if episodes.learn else 0
        smallest = (
            {"smallest_group": min(map(len, episodes.classes.values()))} if episodes.classes else {}
        )  # a mean of so few
        return Work(
            episodes.losses(batching) if steps else iter(()),
            steps,
            {**silo_round.counts(), **smallest},
            lambda: len(episodes.accepted),
            accepted=episodes.accepted.labels,
        )


class Episodes:
    """A silo's round: in each step a few labelled images make class means, by which others and images without a label are told.

    A class of which the silo has no label has the mean of the other silos' class means; one that nobody has is left out.

    Parameters
    ----------
    silo_round : SiloRound
        The round.
    weight : float
        Factor of the loss on images without a label.
    """

    def __init__(self, silo_round: SiloRound, weight: float) -> None:
        import torch

        from anchorage.algorithms.pseudo_labels import Accepted

        images, count = silo_round.images, silo_round.run.model.num_outputs
        self._work, self._weight, self.accepted = silo_round, weight, Accepted()
        members = {c: images.labelled[images.labels[images.labelled] == c] for c in range(count)}
        self.classes: Mapping[int, NDArray[np.int64]] = {
            c: class_images for c, class_images in members.items() if len(class_images)
        }
        """Labelled images of each class that has some."""
        nobody = torch.full((1, count, silo_round.network.linear.in_features), torch.nan)
        helper_means = silo_round.auxiliary(HELPERS)[HELPERS] if HELPERS in silo_round.auxiliary_data else nobody
        self._helpers = fill_missing(helper_means.to(images.views.device))
        self._taught = images.unlabelled if bool(has_mean(self._helpers[0]).any()) else images.unlabelled[:0]
        self.learn = len(self._taught) > 0 or any(len(class_images) > 1 for class_images in self.classes.values())
        """Whether an episode has anything to learn."""

    def losses(self, batching: Batching) -> Iterator[Tensor]:
        """Yield the loss of every episode."""
        images, draws = self._work.images, self._work.draws
        order, choice = draws.numpy("batches-unlabelled"), draws.numpy("episodes")
        augmentation = draws.torch("augmentation")
        leading = images.unlabelled if len(images.unlabelled) else images.labelled
        in_epoch = batching.steps(len(leading)) // batching.epochs
        for step, positions in enumerate(batching.positions(len(leading), order)):
            if step % in_epoch == 0:
                self.accepted.begin()
            unlabelled = leading[positions] if len(self._taught) else self._taught
            yield self._episode(self._draw(choice), unlabelled, augmentation)

    def _draw(self, choice: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the labelled images that make class means, and those that are told by them."""
        support, query = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for class_images in self.classes.values():
            shuffled, first = choice.permutation(class_images), max(1, min(SUPPORT, len(class_images) - 1))
            support.append(shuffled[:first])
            query.append(shuffled[first : first + QUERY])
        return np.concatenate(support), np.concatenate(query)

    def _episode(
        self,
        labelled: tuple[NDArray[np.int64], NDArray[np.int64]],
        unlabelled: NDArray[np.int64],
        augmentation: torch.Generator,
    ) -> Tensor:
        import torch
        from torch.nn import functional

        views, labels = self._work.images.views, self._work.images.labels
        indices = views.to_device(np.concatenate([*labelled, unlabelled]))
        sizes = [*map(len, labelled), len(unlabelled)]
        support, query, others = torch.split(self._work.network.represent(views.learnt(indices, augmentation)), sizes)
        of_support, of_query = (views.to_device(labels[part]) for part in labelled)
        means = means_or_others(class_means(support, of_support, self._helpers.shape[1]), self._helpers.nanmean(0))
        loss = others.new_zeros(())
        if len(query):
            loss = loss + functional.cross_entropy(scores(query, means), of_query)
        if len(others):
            targets = helpers_labels(others.detach(), self._helpers, TEMPERATURE)
            chosen = indices[-len(others) :]
            self.accepted.add(chosen, targets.argmax(1), torch.ones_like(chosen, dtype=torch.bool))
            loss = loss + self._weight * consistency(scores(others, means), targets)
        return loss


class ClassMeans(RoundPart):
    """Tells the mean features of the silo's labelled images, by the trained model, and has its classifier tell classes by them."""

    def __init__(self, silo_round: SiloRound) -> None:
        self._work = silo_round

    def trained(self, rates: float) -> None:
        """Fill in the classifier, which nothing trains; others' class means stand for those that the silo has not."""
        import torch

        class_means, classifier = self._means(), self._work.network.linear
        if HELPERS in self._work.auxiliary_data:
            class_means = means_or_others(
                class_means.cpu(), self._work.auxiliary(HELPERS)[HELPERS].nanmean(0).double().cpu()
            )
        weight, bias = (torch.from_numpy(part) for part in classifier_of(class_means.cpu().numpy()))
        with torch.no_grad():
            classifier.weight.copy_(weight)
            classifier.bias.copy_(bias)

    def auxiliary(self) -> AuxiliaryData:
        """Return ``class_means``, float32 [C, d]; nothing where no image has a label."""
        return {MEANS: self._means().float().cpu().numpy()} if len(self._work.images.labelled) else {}

    def _means(self) -> Tensor:
        """Return the class means, float64 [C, d]; NaN for a class without a label."""
        import torch

        images, network, count = self._work.images, self._work.network, self._work.run.model.num_outputs
        if not len(images.labelled):
            return torch.full((count, network.linear.in_features), torch.nan, dtype=torch.float64)
        features = images.views.map_batches(images.labelled, lambda i: network.represent(images.views.plain(i)))
        return class_means(features.double(), images.views.to_device(images.labels[images.labelled]), count)


class LastClassMeans(RoundMemory):
    """The class means of the last round in which silos told any; sends them to all.

    Parameters
    ----------
    num_classes : int
        Classes C.
    """

    def __init__(self, num_classes: int) -> None:
        self._num_classes = num_classes
        self.restore({})

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the class means of this round; those that are not sound, or wider or narrower than most, are left out."""
        silo_means = {
            silo: means for silo, a in announcements.items() if (means := sound(a, self._num_classes)) is not None
        }
        if silo_means:
            widths = Counter(means.shape[1] for means in silo_means.values())
            usual = min(widths, key=lambda width: (-widths[width], width))
            self.restore({silo: means for silo, means in silo_means.items() if means.shape[1] == usual})

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return ``helper_class_means``, float32 [H, C, d], where they are small."""
        return self._small

    def behind(self, silo: str = "") -> LargeArrays | None:
        """Return them where they are large."""
        return self._large[0] if self._large else None

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the class means by silo."""
        return self._means

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take class means that `state` returned."""
        self._means = dict(sorted(state.items()))
        self._small, self._large = split_large({HELPERS: np.stack(list(self._means.values()))} if state else {})


def sound(announcement: Announcement, num_classes: int) -> NDArray[np.float32] | None:
    """Return the class means that a silo tells, float32 [C, d]; None without any, or where they mean nothing."""
    means = announcement.auxiliary_data.get(MEANS)
    if means is None or means.dtype != np.float32 or means.ndim != 2 or len(means) != num_classes:
        return None
    absent = np.isnan(means).all(1)
    if absent.all() or not (np.abs(means[~absent]) <= LARGEST).all():
        return None
    return means


def mean_of_known(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each class over the silos [H, C, d] that have it, float64 [C, d]; NaN for a class that nobody has."""
    there = ~np.isnan(means)
    total, count = np.where(there, means, 0.0).sum(0), there.sum(0)
    mean_rows: NDArray[np.float64] = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean_rows


def classifier_of(means: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weight [C, d] and bias [C] whose outputs are minus the distances to class means [C, d], but for what all classes share.

    A class without a mean has a bias far below the others'.
    """
    width = means.shape[1]
    absent = np.isnan(means[:, 0])
    weight = np.where(absent[:, None], 0.0, 2 * means / width)
    squares = np.where(absent, 0.0, np.square(means).sum(1) / width)
    return weight, np.where(absent, -10 * (1 + squares.max()), -squares)


def fill_missing(helpers: Tensor) -> Tensor:
    """Return silos' class means [H, C, d] with, for a class that a silo has not, the mean of those that have it; NaN where nobody has."""
    import torch

    return torch.where(helpers.isnan(), helpers.nanmean(0), helpers)


def has_mean(means: Tensor) -> Tensor:
    """Return which classes have a mean, bool [..., C], of class means [..., C, d]."""
    return ~means.isnan().any(-1)


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return the mean of features [n, d] of each class, [C, d]; NaN for one without any."""
    import torch

    one_hot = torch.nn.functional.one_hot(labels, num_classes).to(features.dtype)
    counts = one_hot.sum(0)[:, None]
    means: Tensor = torch.where(counts > 0, one_hot.T @ features / counts.clamp(min=1), torch.nan)
    return means


def means_or_others(means: Tensor, others: Tensor) -> Tensor:
    """Return class means [C, d], others' where there is none."""
    import torch

    return torch.where(means.isnan(), others, means)


def scores(z: Tensor, means: Tensor) -> Tensor:
    """Return minus the squared distance, averaged over dimensions, of features [n, d] to class means [..., C, d], but for what all classes share.

    [..., n, C]; minus infinity for a class without a mean.
    """
    there = means.nan_to_num() / means.shape[-1]
    class_scores: Tensor = z @ (2 * there).mT - (there * means.nan_to_num()).sum(-1)[..., None, :]
    return class_scores.masked_fill(~has_mean(means)[..., None, :], -float("inf"))


def helpers_labels(z: Tensor, helpers: Tensor, temperature: float) -> Tensor:
    """Return the labels of features [n, d] by silos' class means [H, C, d]: their mean probabilities, sharpened, [n, C] (equation N34)."""
    sharpened = scores(z, helpers).softmax(-1).mean(0) ** (1 / temperature)
    return sharpened / sharpened.sum(1, keepdim=True)


def consistency(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of logits [n, C] with probabilities [n, C], which are 0 where a logit is minus infinity (equation N35)."""
    logs = logits.log_softmax(1)
    return -(targets * logs.masked_fill(logits.isinf(), 0.0)).sum(1).mean()

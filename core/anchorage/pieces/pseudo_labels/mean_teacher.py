"""RSCFed: a slowly moving teacher of the silo's own labels the images, by squared error (methods reference, 6.10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero, Fraction, PositiveDecimal
from anchorage.api.fact import Fact
from anchorage.api.piece import piece
from anchorage.api.task import MULTI_LABEL, ONE_CLASS_EACH
from anchorage.pieces.slots import PseudoLabels

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.algorithms.moving_average import MovingAverage
    from anchorage.learning.draws import Draws
    from anchorage.learning.local_training import Batching
    from anchorage.learning.model_hooks import TaskHooks
    from anchorage.learning.silo_round import LocalImages, SiloRound, Work

TEACHER = "teacher/"
"""Prefix of the teacher in the silo's kept state."""

UNKNOWN = -1
"""What an unknown finding is among labels."""

VALIDATION_CONFIDENCE = 0.6
"""Confidence from which on a prediction labels a validation image, where a weighting scores models on those."""


@piece("meanTeacher")
class MeanTeacher(PseudoLabels):
    """Labels by a moving average of the silo's model (RSCFed).

    It teaches its sharpened predictions on all images; of several findings per image all that are unknown, of a segmentation all pixels of images
    without a mask.
    """

    tasks: ClassVar[frozenset[str] | None] = ONE_CLASS_EACH | MULTI_LABEL
    for_volumes: ClassVar[bool] = True

    temperature: AboveZero = Field(
        "0.5", description="Temperature of the teacher's predictions; below 1, it sharpens them."
    )
    weight: PositiveDecimal = Field(
        "0.02", description="Factor of the squared error between the predictions of model and teacher."
    )
    divisor: Literal["BatchSize", "Actual"] = Field(
        "BatchSize",
        description="Divisor of the summed squared error of a short batch. BatchSize: the nominal batch size. Actual: its number of images.",
    )
    slowest: Fraction = Field(
        "0.999",
        description="Maximum decay of the teacher's moving average: the share of itself that it keeps per step. In the first steps it "
        "keeps less.",
    )

    def facts(self) -> frozenset[str]:
        """Say that there are pseudo-labels."""
        return frozenset({Fact.PSEUDO_LABELS, Fact.PSEUDO_LABELS_OF_ONE_HEAD})

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the received model's labels, int64 [b], and whether they are accepted, bool [b]; for validation images alone."""
        views, network = silo_round.images.views, silo_round.network
        confidence, labels = views.map_batches(indices, lambda i: network(views.plain(i)).softmax(1)).max(1)
        return labels, confidence >= VALIDATION_CONFIDENCE

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return the squared errors beside the losses of labelled images; the teacher follows every step."""
        from anchorage.algorithms.moving_average import MovingAverage
        from anchorage.learning.silo_round import Work

        kind = losses_of(silo_round.task)
        indices, batching = kind.select_images(silo_round.images), silo_round.batching()
        if not len(indices):
            return None
        teacher = MovingAverage(silo_round.copy_received(), TEACHER, silo_round.kept)
        losses = kind(silo_round, teacher, indices, self)
        together, steps = silo_round.beside_labelled(losses.losses(batching, silo_round.draws), batching, len(indices))
        slowest = float(self.slowest)
        return Work(
            together,
            steps,
            silo_round.counts(),
            lambda: len(indices),
            kept=teacher.kept,
            accepted=losses.accepted.labels if silo_round.task.one_of_several else None,
            after_step=lambda: teacher.follow(silo_round.network, teacher_decay(teacher.steps, slowest)),
        )


def teacher_decay(step: int, slowest: float) -> float:
    """Return how much of the teacher stays at its step 0, 1, ... (KAT-C2): nothing at first, so that it begins as the student."""
    return min(1 - 1 / (step + 1), slowest)


def sharpened(probabilities: Tensor, temperature: float) -> Tensor:
    """Return rows that sum to one, of the probabilities [n, C] to the power of 1 / temperature (KAT-C2)."""
    powers = probabilities ** (1 / temperature)
    return powers / powers.sum(1, keepdim=True)


def squared_error(logits: Tensor, targets: Tensor, divisor: int) -> Tensor:
    """Return the squared differences of probabilities from targets, logits and targets [n, C], summed and divided."""
    return (logits.softmax(1) - targets).square().sum() / divisor


def losses_of(task: TaskHooks) -> type[TeacherLosses]:
    """Return how a task's predictions are compared."""
    if task.gives_maps:
        return PixelTeacherLosses
    return TeacherLosses if task.one_of_several else FindingTeacherLosses


class TeacherLosses:
    """Yields the losses of a silo's unlabelled images; both views are weak.

    Parameters
    ----------
    silo_round : SiloRound
        The round, whose network is the model in training.
    teacher : MovingAverage
        Who labels.
    indices : ndarray of int64, shape [n]
        Images that it teaches, of `select_images`.
    slot : MeanTeacher
        Temperature, factor and divisor.
    """

    def __init__(
        self, silo_round: SiloRound, teacher: MovingAverage, indices: NDArray[np.int64], slot: MeanTeacher
    ) -> None:
        from anchorage.algorithms.pseudo_labels import Accepted

        self.accepted = Accepted()
        self._network, self._teacher, self._indices = silo_round.network, teacher, indices
        self._images, self._views = silo_round.images, silo_round.images.views
        self._temperature, self._weight = float(slot.temperature), float(slot.weight)
        self._nominal = slot.divisor == "BatchSize"

    @classmethod
    def select_images(cls, images: LocalImages) -> NDArray[np.int64]:
        """Return which images are taught: those without a label."""
        return images.unlabelled

    def losses(self, batching: Batching, draws: Draws) -> Iterator[Tensor]:
        """Yield the loss of each batch."""
        from anchorage.learning.views import epoch_batches

        augmentation, order = draws.torch("augmentation-unlabelled"), draws.numpy("batches-unlabelled")
        for _ in range(batching.epochs):
            self.accepted.begin()
            for positions in epoch_batches(order, len(self._indices), batching.size, batching.smallest):
                indices = self._views.to_device(self._indices[positions])
                divisor = batching.size if self._nominal else len(positions)
                yield self._weight * self._error(indices, augmentation, divisor)

    def _error(self, indices: Tensor, augmentation: torch.Generator, divisor: int) -> Tensor:
        """Return the squared error of a batch, summed over classes and images and divided."""
        import torch

        with torch.no_grad():
            probabilities = self._teacher.network(self._views.weak(indices, augmentation)).softmax(1)
            targets = sharpened(probabilities, self._temperature)
            labels = targets.argmax(1)
            self.accepted.add(indices, labels, torch.ones_like(labels, dtype=torch.bool))
        return squared_error(self._network(self._views.weak(indices, augmentation)), targets, divisor)


class FindingTeacherLosses(TeacherLosses):
    """The same of several findings per image: squared errors of both answers, of unknown entries alone, averaged over the findings of an image."""

    @classmethod
    def select_images(cls, images: LocalImages) -> NDArray[np.int64]:
        """Return the images of which a finding is unknown."""
        taught: NDArray[np.int64] = images.train[(images.labels[images.train] == UNKNOWN).any(1)]
        return taught

    def _error(self, indices: Tensor, augmentation: torch.Generator, divisor: int) -> Tensor:
        import torch

        unknown = torch.from_numpy(self._images.labels[indices.cpu().numpy()] == UNKNOWN).to(indices.device)
        with torch.no_grad():
            present = self._teacher.network(self._views.weak(indices, augmentation)).sigmoid()
            target = sharpened(torch.stack([1 - present, present], 1), self._temperature)[:, 1]
        apart = self._network(self._views.weak(indices, augmentation)).sigmoid() - target
        error: Tensor = (2 * apart.square() * unknown).mean(1).sum() / divisor
        return error


class PixelTeacherLosses(TeacherLosses):
    """The same of a class for each pixel: squared errors summed over classes, averaged over pixels; of volumes over those of random patches.

    The teacher sees images as they are, and what it says moves with the weak view of the model in training, so that both have the same geometry.
    """

    def _error(self, indices: Tensor, augmentation: torch.Generator, divisor: int) -> Tensor:
        import torch

        from anchorage.algorithms.dice import move_maps
        from anchorage.learning.volume_views import VolumeViews

        if isinstance(self._views, VolumeViews):  # whose views leave every voxel where it is
            plain, changed = self._views.pair("weak", indices, augmentation)
            with torch.no_grad():
                patch_targets = sharpened(self._teacher.network(plain).softmax(1), self._temperature)
            squares = (self._network(changed).softmax(1) - patch_targets).square().sum(1)
            of_patches: Tensor = squares.flatten(1).mean(1)
            return of_patches.sum() / (divisor * self._views.per_image)
        with torch.no_grad():
            targets = sharpened(self._teacher.network(self._views.plain(indices)).softmax(1), self._temperature)
        weak_images, places = self._views.with_places("weak", indices, augmentation)
        apart = (self._network(weak_images).softmax(1) - move_maps(targets, places)).square().sum(1)
        known = places >= 0
        error: Tensor = ((apart * known).sum((1, 2)) / known.sum((1, 2)).clamp(min=1)).sum() / divisor
        return error

"""What a silo's round starts from, and what it consists of; a method's pieces turn the one into the other."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from types import NoneType
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import AUXILIARY_DATA_MISSING
from anchorage.api.piece import AuxiliaryArray, expect
from anchorage.api.piece_faults import naming_pieces
from anchorage.api.run import RunDescription
from anchorage.learning.data.labels import Labels, is_known
from anchorage.learning.device_group import DeviceGroup
from anchorage.learning.draws import Draws
from anchorage.learning.hook_checks import check_kind, checked_arrays, checked_metrics
from anchorage.learning.hooks import LearningHooks
from anchorage.learning.local_training import BATCHES, Batching, Labelled, labelled_losses, two_head_losses
from anchorage.learning.loss_checks import CheckedLoss, checked_losses, sample_outputs
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import TaskHooks
from anchorage.learning.network import Network
from anchorage.learning.round_part import RoundPart
from anchorage.learning.views import Views
from anchorage.transport.messages import AuxiliaryData


@dataclass(frozen=True)
class Work:
    """A round's training, ready to run."""

    losses: Iterator[Tensor]
    """A step's loss each, computed lazily."""

    steps: int
    """How many; 0 means that there is nothing to train on."""

    samples: Mapping[str, int]
    """Counts for the announcement, all but ``selected``."""

    selected: Callable[[], int] = int
    """How many pseudo-labels were accepted, known after training."""

    auxiliary_data: Callable[[], AuxiliaryData] = dict
    """What is announced beside the update, known after training."""

    kept: Callable[[], Mapping[str, NDArray[Any]]] = dict
    """Arrays to keep for the next round."""

    after_step: Callable[[], None] = lambda: None
    """Called after every step of the optimiser."""

    untrained: Mapping[str, NDArray[Any]] | None = None
    """Tensors that are the whole update of a silo that takes no step; None: it sends none."""

    metrics: Callable[[], Mapping[str, float]] = dict
    """What people may want to see beside the loss, known after training."""

    per_image: bool = False
    """Whether each loss is the mean of one loss per labelled image, which depends on nothing else."""

    accepted: Callable[[], tuple[NDArray[np.int64], NDArray[np.int64]]] | None = None
    """Which images had accepted pseudo-labels in the last epoch, and these, int64 [m] each, known after training; None: nobody can tell."""

    resumes: bool = False
    """Whether the losses can go on where another process left them: nothing between two steps decides them but the network, the round's `Place`
    and `state`."""

    state: "Resumable | None" = None
    """What else decides them."""

    divides: bool = False
    """Whether each loss is the mean over its images and taken of this device's `DeviceGroup.part` of every batch."""


class Resumable(Protocol):
    """State of a round's losses between two steps."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return it, by name."""
        ...

    def restore(self, arrays: Mapping[str, NDArray[Any]], device: torch.device) -> None:
        """Take what `arrays` returned."""
        ...


class LocalImages:
    """A silo's images for training, for validation, and to score models on.

    Parameters
    ----------
    views : Views
        All images.
    labels : ndarray, shape [n, ...]
        Labels (`anchorage.learning.data.labels`).
    train, validation, held_out : ndarray of int64
        Indices; `validation` takes part in training (weights, cycles), `held_out` does not.
    stated_counts : sequence of int, length C, optional
        Images of each stratum by the site's records, labelled or not.
    unannotated : tuple of int
        Classes that nobody drew in the masks.
    """

    def __init__(
        self,
        views: Views,
        labels: Labels,
        train: NDArray[np.int64],
        validation: NDArray[np.int64],
        held_out: NDArray[np.int64],
        stated_counts: Sequence[int] | None = None,
        unannotated: tuple[int, ...] = (),
    ) -> None:
        self.views, self.labels, self.unannotated = views, labels, unannotated
        self.stated_counts = None if stated_counts is None else np.array(stated_counts, np.int64)
        self.train, self.validation, self.held_out = train, validation, held_out
        known = is_known(labels[train])
        self.labelled, self.unlabelled = train[known], train[~known]
        self.computed: dict[str, Any] = {}
        """What pieces compute from the images once per run, by a name of their own."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return what tells all images from others (`Views.content`), and their labels with the classes that these leave out."""
        left_out = {"unannotated": np.array(self.unannotated)} if self.unannotated else {}
        return {"images": self.views.content(), "labels": self.labels, **left_out}


@dataclass(frozen=True)
class SiloRound:
    """One round of a silo, from the received model on."""

    run: RunDescription
    """The run."""

    method: TrainingMethod
    """Its method."""

    network: Network
    """The model in training, still as received."""

    images: LocalImages
    """The silo's images."""

    draws: Draws
    """Generators of the round."""

    auxiliary_data: AuxiliaryData
    """What came with the model; large arrays lie in its own bytes, so they are read-only and only good for this round."""

    kept: Mapping[str, NDArray[Any]]
    """What was kept from the rounds before."""

    received: Mapping[str, NDArray[Any]]
    """Every tensor that came, those that are no part of the network included."""

    copy_received: Callable[[], Network]
    """Returns a frozen copy of the received model, in eval mode."""

    score: Callable[[], NDArray[np.int64] | None]
    """Returns what the weighting counts of the network in training on the validation images, after training; None where it does not."""

    devices: DeviceGroup
    """The processes that train this silo's network, each with its part of every batch."""

    repeated: bool = False
    """Whether the silo trains more than once in this round."""

    parts: Sequence[RoundPart] = ()
    """What the method's pieces do beside the losses."""

    owners: Sequence[LearningHooks] = ()
    """The piece of each of `parts`."""

    @property
    def task(self) -> TaskHooks:
        """The run's task, as the silo's masks tell of it."""
        return expect(self.run.model.task, TaskHooks).partly_annotated(self.images.unannotated)

    def prepare(self) -> Work:
        """Return the round's training: the first objective that the method's pieces have, else that of labelled images alone.

        Raises
        ------
        AnchorageError
            PIECE_WRONG: what a piece returned is no work, or will be when it is used.
        """
        method = self.method
        if (asked := method.server_training.silo_work(self)) is not None:
            return self._check_work(method.server_training, "silo_work", asked)
        for piece in (method.self_supervised, method.input_mixing, method.second_head, method.pseudo_labels):
            if (work := piece.objective(self)) is not None:
                return self._check_work(piece, "objective", work)
        return self._check_work(method.local_loss, "round_loss", self._supervised_work())

    def _check_work(self, piece: LearningHooks, hook: str, work: Work) -> Work:
        """Return the work of a piece's hook with checks of what it yields and returns."""
        check_kind(piece, hook, work, Work, "a Work or None")
        check_kind(piece, f"{hook}, as Work.steps,", work.steps, int, "a number of steps")
        check_kind(piece, f"{hook}, as Work.losses,", work.losses, Iterable, "an iterator of losses")
        return replace(
            work,
            losses=checked_losses(work.losses, piece, hook, self.sample_outputs),
            kept=lambda: checked_arrays(piece, f"{hook}, as Work.kept,", work.kept()),
            auxiliary_data=lambda: checked_arrays(piece, f"{hook}, as Work.auxiliary_data,", work.auxiliary_data()),
            metrics=lambda: checked_metrics(piece, f"{hook}, as Work.metrics,", work.metrics()),
        )

    def of_parts(
        self, hook: Literal["auxiliary", "kept", "beside"], declared: Sequence[AuxiliaryArray] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return the arrays of a hook of all parts.

        Parameters
        ----------
        hook : str
            Of `RoundPart`.
        declared : sequence of AuxiliaryArray, optional
            What they may be; None: anything.

        Raises
        ------
        AnchorageError
            PIECE_WRONG: they are no arrays, or others than declared.
        """
        part_arrays: dict[str, NDArray[Any]] = {}
        for part, piece in zip(self.parts, self.owners, strict=True):
            with naming_pieces(piece):
                arrays = getattr(part, hook)()
            part_arrays |= checked_arrays(piece, f"{hook} of its RoundPart", arrays, declared)
        return part_arrays

    def sample_outputs(self) -> Tensor:
        """Return outputs of the network as it is, of a few images."""
        return sample_outputs(self.network, self.images.views, self.images.train)

    def _supervised_work(self) -> Work:
        """Return the losses of labelled images; no step where the silo has no label (methods reference, 6.1)."""
        batching, count = self.batching(), len(self.images.labelled)
        steps = batching.steps(count)
        samples = {"train": count, "labelled": count, "unlabelled": len(self.images.unlabelled)}
        if not steps:
            return Work(iter(()), 0, samples)
        contrast = self.method.regulariser.contrast(self)
        check_kind(self.method.regulariser, "contrast", contrast, (tuple, NoneType), "a pair of functions or None")
        if contrast is None:
            maps = self.network.gives_maps  # whose Dice is of a whole batch
            plain = self.method.local_loss.per_image and not self.method.pseudo_labels.strong_views_too and not maps
            alone = plain and self.method.second_head.head_loss(*self.labelled()[::-1], self.task) is None
            losses = self.labelled_losses(batching)
            return Work(losses, steps, samples, per_image=alone, resumes=True, divides=self.task.mean_over_images)
        term, state_of_term = CheckedLoss(self.method.regulariser, "contrast", contrast[0]), contrast[1]
        data, loss = self.labelled()
        losses = labelled_losses(
            self.network, data, loss, batching, self.draws, both_views=False, contrast=term, devices=self.devices
        )
        return Work(losses, steps, samples, kept=state_of_term, resumes=True, divides=self.task.mean_over_images)

    def batching(self, smallest: int = 1) -> Batching:
        """Return the passes of this silo; batches below `smallest`, or that a batch normalisation cannot take, are skipped."""
        local = self.local(labelled=len(self.images.labelled) > 0)
        return Batching.of(local, max(smallest, self.network.smallest_batch(self.run.model.image_size)))

    def local(self, *, labelled: bool) -> "LocalTraining":
        """Return the local training of a silo that has labels, or has none."""
        return LocalTraining.of(self.method, labelled=labelled)

    def labelled(self) -> tuple[Labelled, CheckedLoss]:
        """Return the images with labels, and the loss on them."""
        indices = self.images.labelled
        piece = self.method.local_loss
        targets = piece.targets(self, self.images.labels)[indices]
        data = Labelled(self.images.views, indices, targets, self.images.unannotated)
        return data, CheckedLoss(piece, "round_loss", piece.round_loss(self, data))

    def labelled_losses(self, batching: Batching) -> Iterator[Tensor]:
        """Yield the loss on labelled images, step by step, of both heads where there are two."""
        data, loss = self.labelled()
        heads = self.method.second_head.head_loss(loss, data, self.task)
        both_views, devices = self.method.pseudo_labels.strong_views_too, self.devices
        if heads is not None:
            both = CheckedLoss(self.method.second_head, "head_loss", heads)
            return two_head_losses(
                self.network, data, both, batching, self.draws, both_views=both_views, devices=devices
            )
        return labelled_losses(self.network, data, loss, batching, self.draws, both_views=both_views, devices=devices)

    def auxiliary(self, *names: str) -> Mapping[str, Tensor]:
        """Return arrays that came beside the model as tensors where the images are.

        Raises
        ------
        AnchorageError
            One is missing.
        """
        if missing := [n for n in names if n not in self.auxiliary_data]:
            detail = f"the task of round {self.draws.round} came without {missing[0]}"
            raise AnchorageError(AUXILIARY_DATA_MISSING, detail)
        return {n: torch.from_numpy(np.array(self.auxiliary_data[n])).to(self.images.views.device) for n in names}

    def counts(self) -> Mapping[str, int]:
        """Return the announcement's counts of a silo that trains on all its images."""
        labelled, unlabelled = len(self.images.labelled), len(self.images.unlabelled)
        return {"train": labelled + unlabelled, "labelled": labelled, "unlabelled": unlabelled}

    def beside_labelled(
        self, losses: Iterator[Tensor], batching: Batching, pseudo_labelled: int | None = None
    ) -> tuple[Iterator[Tensor], int]:
        """Add the loss on labelled images to each step of the losses of `pseudo_labelled` images, by default all unlabelled ones; the shorter
        of the two starts again or is done.
        """
        labelled = batching.steps(len(self.images.labelled))
        steps = max(
            batching.steps(len(self.images.unlabelled) if pseudo_labelled is None else pseudo_labelled), labelled
        )
        return (self._together(self._cycle_losses(steps), losses) if labelled else losses), steps

    @property
    def listeners(self) -> list[RoundPart]:
        """Those parts that look at pseudo-labels and features of the received model."""
        return [part for part in self.parts if part.wants_pseudo_labels]

    def _cycle_losses(self, steps: int) -> Iterator[Tensor]:
        batching = self.batching()
        once = batching.in_pass(len(self.images.labelled))
        enough = Batching(-(-steps // once), batching.size, batching.smallest)
        return islice(self.labelled_losses(enough), steps - self.draws.place.begun[BATCHES])

    @staticmethod
    def _together(labelled: Iterator[Tensor], unlabelled: Iterator[Tensor]) -> Iterator[Tensor]:
        for known, unlabelled_loss in zip_longest(labelled, unlabelled):
            yield known if unlabelled_loss is None else known + unlabelled_loss


@dataclass(frozen=True)
class LocalTraining:
    """Epochs, batches and optimiser of one silo."""

    epochs: int
    batch_size: int
    optimiser: Any
    """An `OptimiserHooks`, the silo's overrides applied."""
    steps: int | None = None
    """Steps in place of `epochs`."""

    @classmethod
    def of(cls, method: TrainingMethod, *, labelled: bool) -> "LocalTraining":
        """Return what a silo does that has labels, or has none; with a validation cycle the epochs are its longest."""
        local, other = method.local, method.local.unlabelled
        if labelled:
            epochs = local.epochs if local.cycle is None else local.cycle.max_epochs
            return cls(epochs, local.batch_size, method.optimiser, local.steps)
        changes = {"learning_rate": other.learning_rate, "clip_norm": other.clip_norm}
        overrides = {name: value for name, value in changes.items() if value is not None}
        return cls(
            other.epochs or local.epochs,
            other.batch_size or local.batch_size,
            method.optimiser.model_copy(update=overrides),
            local.steps,
        )

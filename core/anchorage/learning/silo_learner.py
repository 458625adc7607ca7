"""A silo's learner: trains and scores models for every method (`anchorage.rounds.interfaces.SiloLearner`)."""

import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor

from anchorage.data import ImageSet
from anchorage.data.augmentation import AUGMENTATIONS
from anchorage.errors import AnchorageError
from anchorage.errors.learning import MODEL_MISMATCH
from anchorage.learning.device import calculation
from anchorage.learning.draws import Draws
from anchorage.learning.local_work import LocalImages, RoundWork, Work
from anchorage.learning.losses import proximal_penalty
from anchorage.learning.metrics import confusion_matrix
from anchorage.learning.models import ANCHOR_HEAD, Network, build_model
from anchorage.learning.objectives import prepare
from anchorage.learning.round_state import RoundState
from anchorage.learning.stepping import build_optimiser, momentum_arrays, restore_momentum, take_steps
from anchorage.learning.validation import RoundLabels, validation_split
from anchorage.learning.views import Views
from anchorage.learning.weights import load, write
from anchorage.messages import Announcement, Evaluation, SideChannel, Task
from anchorage.spec.run import RunDescription
from anchorage.tensors.layout import Layout

_VALIDATION = "validation/labels"


class TorchSiloLearner:
    """Trains on one silo's images. `train` and `evaluate` may run in two threads.

    Parameters
    ----------
    run : RunDescription
        The run as the server described it.
    silo : str
        The silo's name.
    labels : str
        ``None`` (labels of the images are not looked at), ``All`` or ``Partial``.
    images : ImageSet
        The silo's images.
    state : Path
        Folder for what is kept from round to round.
    device : torch.device
        Where to train.

    Raises
    ------
    AnchorageError
        The images are not of the model's size or channels.
    """

    def __init__(
        self, run: RunDescription, silo: str, labels: str, images: ImageSet, state: Path, device: torch.device
    ) -> None:
        shape = (run.model.channels, run.model.image_size, run.model.image_size)
        if images.images.shape[1:] != shape:
            raise AnchorageError(MODEL_MISMATCH, f"the images are {images.images.shape[1:]}, the model takes {shape}")
        self._run, self._silo, self._device = run, silo, device
        self._down, self._up = Layout.from_json(run.down), Layout.from_json(run.up)
        self._network = self._build()
        self._images = self._split((images.without_labels() if labels == "None" else images).labels, images.images)
        self._local = run.method.local.of(labelled=len(self._images.labelled) > 0)
        same = run.model_dump_json(exclude={"rounds"})  # a run that is resumed with more rounds keeps its momentum
        key = blake3(f"{silo}\0{same}".encode()).hexdigest()[:16]
        self._state = RoundState(state / f"learner-{key}")
        self._scorer: Network | None = None
        self._scoring = Lock()
        self._labels = RoundLabels()

    def _build(self) -> Network:
        return build_model(self._run.model, self._run.method, self._run.seed).to(self._device).eval()

    def _split(self, labels: NDArray[np.int64], pixels: NDArray[np.uint8]) -> LocalImages:
        train, validation = np.arange(len(labels)), np.empty(0, np.int64)
        weighting = self._run.method.weighting
        if weighting.type == "DVW":
            rng = Draws(self._run.seed, silo=self._silo).numpy("validation-split")
            train, validation = validation_split(labels, weighting.validation_percent, rng)
        views = Views(pixels, AUGMENTATIONS[self._run.model.augmentation], self._device)
        return LocalImages(views, labels, train, validation)

    def train(
        self,
        task: Task,
        model: NDArray[np.uint8],
        out: Callable[[int], NDArray[np.uint8]],
        progress: Callable[[int, int], None],
    ) -> Announcement:
        """Train from `model` and write the update; see `anchorage.rounds.interfaces.SiloLearner.train`."""
        started = time.perf_counter()
        with calculation(), self._labels.labelling(task.round):
            load(self._network, self._down, model)
            kept = self._state.before(task.round)
            received = self._round_work(task, kept)
            work = prepare(received)
            guessed = self._label_validation(task.round, received)
            sgd = self._optimiser(kept)
            loss, steps = self._take_steps(work, sgd, progress)
            arrays = {**self._carried(kept, sgd, steps), **work.kept(), **guessed}
            if arrays:
                self._state.keep(task.round, arrays)
            selected, unlabelled = work.selected(), work.samples["unlabelled"]
            metrics = {"loss": loss, "acceptance": selected / unlabelled if unlabelled else 0.0}
            return Announcement(
                task.id,
                {**work.samples, "selected": selected},
                self._side(work, task.round),
                {**metrics, "seconds": time.perf_counter() - started},
                write(self._network, self._up, out) if steps else None,
            )

    def evaluate(self, task: Task, model: NDArray[np.uint8]) -> Evaluation:
        """Score a model on the validation split; see `anchorage.rounds.interfaces.SiloLearner.evaluate`.

        Labels are the images' own; a silo without any takes the accepted pseudo-labels of the task's round, and scores 0 of 0 where it
        has none. It waits for a `train` of that round that has begun, so a train task must be handed over before the round's evaluations.
        """
        layout = self._up if task.model.layout == self._up.digest else self._down
        with calculation(), self._scoring:
            if self._scorer is None:
                self._scorer = self._build()
            load(self._scorer, layout, model)
            return Evaluation(task.id, self._score(self._scorer, task.round))

    def _round_work(self, task: Task, kept: Mapping[str, NDArray[Any]]) -> RoundWork:
        draws = Draws(self._run.seed, task.round, self._silo)
        return RoundWork(self._run, self._network, self._images, draws, task.side, kept, self._frozen)

    def _frozen(self) -> Network:
        return deepcopy(self._network).requires_grad_(False)

    def _optimiser(self, kept: Mapping[str, NDArray[Any]]) -> torch.optim.SGD:
        method = self._run.method
        semi = method.pseudo_labels.type == "FlexMatch"
        sgd = build_optimiser(self._network, self._local.optimiser, decay_classifier=not semi)
        if method.local.optimiser.state == "Persist":
            restore_momentum(self._network, sgd, kept)
        return sgd

    def _take_steps(self, work: Work, sgd: torch.optim.SGD, progress: Callable[[int, int], None]) -> tuple[float, int]:
        regulariser, clip = self._run.method.regulariser, float(self._local.optimiser.clip_norm)
        losses = work.losses
        if regulariser.type == "Proximal":
            losses = self._with_pull(losses, float(regulariser.mu))

        def after_step(done: int) -> None:
            work.after_step()
            progress(done, work.steps)

        return take_steps(self._network, sgd, losses, clip_norm=clip, after_step=after_step)

    def _with_pull(self, losses: Iterator[Tensor], mu: float) -> Iterator[Tensor]:
        trained = [p for name, p in self._network.named_parameters() if not name.startswith(ANCHOR_HEAD)]
        received = [p.detach().clone() for p in trained]
        for loss in losses:
            yield loss + proximal_penalty(trained, received, mu)

    def _carried(
        self, kept: Mapping[str, NDArray[Any]], sgd: torch.optim.SGD, steps: int
    ) -> Mapping[str, NDArray[Any]]:
        if not steps:  # an inactive round hands on what there was
            return {name: array for name, array in kept.items() if name != _VALIDATION}
        persist = self._run.method.local.optimiser.state == "Persist"
        return momentum_arrays(self._network, sgd) if persist else {}

    def _side(self, work: Work, round_number: int) -> SideChannel:
        weighting = self._run.method.weighting.type
        if weighting == "SemiAnAgg":
            return {"similarity": np.full(self._run.model.num_classes, np.nan), **work.side()}
        if weighting == "DVW":
            return {**work.side(), "validation": self._score(self._network, round_number)}
        return work.side()

    def _guesses_validation(self) -> bool:
        validation = self._images.labels[self._images.validation]
        return len(validation) > 0 and bool((validation < 0).all()) and self._run.method.pseudo_labels.type != "None"

    def _label_validation(self, round_number: int, work: RoundWork) -> Mapping[str, NDArray[np.int64]]:
        if not self._guesses_validation():
            return {}
        labels, accepted = work.label(self._images.validation)
        guessed = torch.where(accepted, labels, -1).cpu().numpy()
        self._labels.publish(round_number, guessed)
        return {_VALIDATION: guessed}

    def _validation_labels(self, round_number: int) -> NDArray[np.int64]:
        true = self._images.labels[self._images.validation]
        if not self._guesses_validation():
            return true
        guessed = self._labels.of(round_number)
        if guessed is None:
            guessed = self._state.of(round_number).get(_VALIDATION)
        return true if guessed is None else guessed

    def _score(self, network: Network, round_number: int) -> NDArray[np.int64]:
        labels = self._validation_labels(round_number)
        known = labels >= 0
        classes, views = self._run.model.num_classes, self._images.views
        predictions = np.empty(0, np.int64)
        if known.any():
            indices = self._images.validation[known]
            predictions = views.mapped(indices, lambda i: network(views.plain(i)).argmax(1)).cpu().numpy()
        if self._run.method.weighting.metric == "MicroF1":
            return np.array([(predictions == labels[known]).sum(), len(predictions)], np.int64)
        return confusion_matrix(labels[known], predictions, classes)

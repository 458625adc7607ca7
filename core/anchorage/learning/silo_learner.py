"""A silo's learner: trains and scores models for every method (`anchorage.engine.interfaces.SiloLearner`)."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import NoneType
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MODEL_MISMATCH
from anchorage.api.metric_names import ACCEPTANCE
from anchorage.api.piece import expect
from anchorage.api.run import RunDescription
from anchorage.api.task import Tally
from anchorage.learning.adaptive import AdaptiveRound
from anchorage.learning.data import ImageSet
from anchorage.learning.data.labels import Labels, is_known
from anchorage.learning.device import calculation
from anchorage.learning.device_group import DeviceGroup
from anchorage.learning.dp_sgd import DpSgd
from anchorage.learning.draws import Draws, Place
from anchorage.learning.encoded_views import views_of
from anchorage.learning.hook_checks import check_kind, checked_arrays
from anchorage.learning.loss_checks import checked_losses, suspecting
from anchorage.learning.map_scores import scored_maps
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import TaskHooks
from anchorage.learning.network import Network
from anchorage.learning.round_part import RoundPart
from anchorage.learning.round_state import RoundState
from anchorage.learning.silo_networks import Networks
from anchorage.learning.silo_round import LocalImages, LocalTraining, SiloRound, Work
from anchorage.learning.stepping import take_steps
from anchorage.learning.task_checkpoint import Checkpointing, TaskCheckpoint
from anchorage.learning.validation import RoundLabels, validation_split
from anchorage.learning.weights import (
    load,
    load_local,
    local_arrays,
    without_beside,
    write,
)
from anchorage.transport.messages import VALIDATION, Announcement, AuxiliaryData, Evaluation, Task
from anchorage.transport.tensors.chunks import LateManifest, Manifest
from anchorage.transport.tensors.large_arrays import layout_of
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import read_arrays, write_arrays

_VALIDATION = "validation/labels"
_UNDIVIDED = "its method, or DP-SGD, does not divide its batches over devices; docs/agent.md lists those that do"

Examine = Callable[[NDArray[np.int64], NDArray[np.int64]], Mapping[str, float]]
"""Returns metrics of accepted pseudo-labels: which images have one, and these, int64 [m] each."""

_log = logging.getLogger(__name__)


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
    networks : Networks, optional
        Of this run and device, where other silos of this thread use them, too.
    examine : callable, optional
        Judges the accepted pseudo-labels after each round's training. A simulation knows the truth; nothing that trains can ask it.
    dp_sgd : DpSgd, optional
        Trains in place of plain steps.
    checkpointing : Checkpointing, optional
        How often a task's training is kept inside the task; never.
    devices : DeviceGroup, optional
        Processes that train this silo's network together; only this one.
    embeddings : Path, optional
        Where a frozen encoder's embeddings are kept for other runs.

    Raises
    ------
    AnchorageError
        The images are not of the model's size or channels.
    """

    def __init__(
        self,
        run: RunDescription,
        silo: str,
        labels: str,
        images: ImageSet,
        state: Path,
        device: torch.device,
        networks: Networks | None = None,
        examine: Examine | None = None,
        dp_sgd: DpSgd | None = None,
        checkpointing: Checkpointing | None = None,
        devices: DeviceGroup | None = None,
        embeddings: Path | None = None,
    ) -> None:
        self._embeddings = embeddings
        shape = run.model.input_shape
        if images.images.shape[1:] != shape:
            raise AnchorageError(MODEL_MISMATCH, f"the images are {images.images.shape[1:]}, the model takes {shape}")
        self._run, self._silo, self._device, self._examine = run, silo, device, examine
        self._dp_sgd, self._devices = dp_sgd, devices or DeviceGroup()
        self._method = TrainingMethod.of(run.method)
        self._task = expect(run.model.task, TaskHooks).partly_annotated(images.unannotated)
        self._down, self._up = Layout.from_json(run.down), Layout.from_json(run.up)
        layouts = (self._down, without_beside(self._down), self._up.behind(self._down))
        self._layouts = {layout.digest: layout for layout in layouts}
        self._networks = networks or Networks(run, device)
        self._network = self._networks.training
        self._images = self._split(images.without_labels() if labels == "None" else images)
        self._local = LocalTraining.of(self._method, labelled=len(self._images.labelled) > 0)
        same = run.model_dump_json(
            exclude={"rounds"}, exclude_none=True
        )  # more rounds, or an upgrade, keep the momentum
        key = blake3(f"{silo}\0{same}".encode()).hexdigest()[:16]
        folder = state / f"learner-{key}"
        self._state, self._file, self._checkpointing = RoundState(folder), folder / "task.safetensors", checkpointing
        self._announced = [array for piece in self._method.pieces for array in piece.auxiliary() if array.up]
        self._large = sorted({array.name for array in self._announced if array.large})
        self._scoring = Lock()
        self._labels = RoundLabels()

    def _split(self, images: ImageSet) -> LocalImages:
        strata = images.strata
        train, validation, held_out = np.arange(len(strata)), np.empty(0, np.int64), np.empty(0, np.int64)
        if self._run.silo_percent:
            labelled = np.flatnonzero(strata >= 0)
            rng = Draws(self._run.seed, silo=self._silo).numpy("held-out split")
            held_out = labelled[validation_split(strata[labelled], self._run.silo_percent, rng)[1]]
            train = np.setdiff1d(train, held_out)
        cycle = self._run.method.local.cycle
        percent = max((piece.held_out_percent() for piece in self._method.pieces), default=0)
        percent = max(percent, 0 if cycle is None else cycle.validation_percent)
        if percent:
            rng = Draws(self._run.seed, silo=self._silo).numpy("validation-split")
            train, validation = (train[part] for part in validation_split(strata[train], percent, rng))
        draws = Draws(self._run.seed, silo=self._silo)
        views = views_of(images.images, self._run.model, self._method, self._device, draws, self._embeddings)
        return LocalImages(views, images.labels, train, validation, held_out, images.stated_counts, images.unannotated)

    def train(
        self,
        task: Task,
        model: NDArray[np.uint8],
        out: Callable[[int], NDArray[np.uint8]],
        progress: Callable[[int, int], int],
    ) -> Announcement:
        """Train from `model` and write the update; see `anchorage.engine.interfaces.SiloLearner.train`."""
        started = time.perf_counter()
        with calculation(), self._labels.labelling(task.round):
            self._devices.wait()
            layout = self._layout_of(task)
            received_arrays = read_arrays(layout, model)
            auxiliary_data = {**task.auxiliary_data, **read_arrays(task.behind, model[layout.nbytes :])}
            load(self._network, layout, model, task.model.fixed)
            self._images.views.encoded_by(self._network)
            previous_state = self._state.of(task.round) if task.repetition else self._state.before(task.round)
            load_local(self._network, {**self._networks.local_part, **previous_state})
            checkpoint = self._checkpoint_of(task, auxiliary_data, previous_state)
            silo_round = self._round(task, auxiliary_data, previous_state, received_arrays, checkpoint.place)
            work = silo_round.prepare()
            cycle = self._run.method.local.cycle
            if cycle is not None:
                adaptive = AdaptiveRound(
                    cycle.of(self._silo), task.auxiliary_data, previous_state, lambda: self._validated_on(task.round)
                )
                work, progress = adaptive.shorten(work), adaptive.hearing(progress)
            validation_labels = self._label_validation(task.round, silo_round)
            optimiser = self._optimiser(previous_state, task.round)
            with ExitStack() as stack:
                for part in silo_round.parts:
                    stack.enter_context(part.stepping())
                loss, steps = self._take_steps(silo_round, work, optimiser, progress, checkpoint)
            if not self._devices.leads:
                return Announcement(task.id, work.samples, {}, {}, None)
            if steps:
                for part in silo_round.parts:
                    part.trained(steps * optimiser.param_groups[0]["lr"])
            arrays = {**self._carry_over(silo_round, optimiser, steps), **work.kept(), **validation_labels}
            if arrays:
                self._state.keep(task.round, arrays)
            selected, unlabelled = work.selected(), work.samples["unlabelled"]
            metrics = {"loss": loss, ACCEPTANCE: selected / unlabelled if unlabelled else 0.0}
            if self._examine is not None and work.accepted is not None:
                metrics |= self._examine(*work.accepted())
            auxiliary = {**silo_round.of_parts("auxiliary", self._announced), **work.auxiliary_data()}
            large = {name: auxiliary.pop(name) for name in self._large if name in auxiliary}
            extra_arrays = silo_round.of_parts("beside") if steps else work.untrained
            update = self._write_update(extra_arrays, large, out)
            checkpoint.forget()
            return Announcement(
                task.id,
                {**work.samples, "selected": selected},
                auxiliary,
                {**metrics, **work.metrics(), "seconds": time.perf_counter() - started},
                update,
                layout_of(large),
            )

    def _checkpoint_of(
        self, task: Task, auxiliary_data: AuxiliaryData, previous_state: Mapping[str, NDArray[Any]]
    ) -> TaskCheckpoint:
        begins_from = (auxiliary_data, previous_state, {"devices": np.array(self._devices.count)})
        return TaskCheckpoint(
            self._file, task, lambda: (*begins_from, self._images.arrays()), self._device, self._checkpointing
        )

    def _write_update(
        self,
        extra_arrays: Mapping[str, NDArray[Any]] | None,
        large: Mapping[str, NDArray[Any]],
        out: Callable[[int], NDArray[np.uint8]],
    ) -> Manifest | None:
        """Write the update, where there is one, and large arrays behind it."""
        if extra_arrays is not None and not large:
            return write(self._network, self._up, out, extra_arrays)
        if not large:
            return None
        behind, update_bytes = layout_of(large), self._up.nbytes if extra_arrays is not None else 0
        buffer = out(update_bytes + behind.nbytes)
        if extra_arrays is not None:
            write(self._network, self._up, lambda nbytes: buffer[:nbytes], extra_arrays)
        write_arrays(behind, buffer[update_bytes:], large)
        return LateManifest(self._up.digest, buffer)

    def evaluate(self, task: Task, model: NDArray[np.uint8]) -> Evaluation:
        """Score a model on the validation split, or on the held-out images with the silo's own layers (`SiloLearner.evaluate`).

        Labels are the images' own; a silo without any takes the accepted pseudo-labels of the task's round, and scores 0 of 0 where it
        has none. It waits for a `train` of that round that has begun, so a train task must be handed over before the round's evaluations.
        """
        with calculation(), self._scoring:
            scorer = self._networks.scoring
            load(scorer, self._layout_of(task), model, task.model.fixed)
            self._images.views.encoded_by(scorer)
            if task.held_out:
                previous_state = self._state.before(task.round + 1)
                load_local(scorer, {**self._networks.local_part, **previous_state})
                for piece in self._method.pieces:
                    piece.load_own_layers(scorer, previous_state)
                held_out = self._images.held_out
                return Evaluation(task.id, self._tally(scorer, held_out), len(held_out))
            _, counts, images = self._validate(scorer, task.round)
            return Evaluation(task.id, {} if counts is None else {VALIDATION: counts}, images)

    def _tally(self, network: Network, indices: NDArray[np.int64]) -> Tally:
        """Return the task's tally of labelled images."""
        labels = self._images.labels[indices]
        scored = self._scored_maps(network, indices, labels)[0] if self._task.gives_maps else None
        tally = self._task.tally(labels, self._activate(network, indices)[1] if scored is None else scored)
        return checked_arrays(self._task, "tally", tally)

    def _activate(self, network: Network, indices: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.float64]]:
        """Return the network's outputs for images, float64 [n, outputs], as they are and as the task activates them."""
        views = self._images.views
        if not len(indices):
            return torch.empty(0), np.empty((0, self._run.model.num_outputs))
        logits = views.map_batches(indices, lambda i: network(views.plain(i))).double()
        return logits, self._task.activated(logits).cpu().numpy()

    def _scored_maps(self, network: Network, indices: NDArray[np.int64], labels: Labels) -> tuple[NDArray[Any], float]:
        """Return what the task scores maps by, and its loss."""
        return scored_maps(network, self._images.views, self._task, indices, labels)[:2]

    def _layout_of(self, task: Task) -> Layout:
        return self._layouts.get(task.model.layout, self._down)

    def _round(
        self,
        task: Task,
        auxiliary_data: AuxiliaryData,
        previous_state: Mapping[str, NDArray[Any]],
        received_arrays: Mapping[str, NDArray[Any]],
        place: Place | None = None,
    ) -> SiloRound:
        draws = Draws(self._run.seed, task.round, self._silo, task.repetition or 0, place or Place({}))
        begun = SiloRound(
            self._run,
            self._method,
            self._network,
            self._images,
            draws,
            auxiliary_data,
            previous_state,
            received_arrays,
            self._frozen,
            lambda: self._score(self._network, task.round),
            self._devices,
            repeated=task.repetition is not None,
        )
        parts = [(piece, piece.begin(begun)) for piece in self._method.pieces]
        for piece, part in parts:
            check_kind(piece, "begin", part, (RoundPart, NoneType), "a RoundPart or None")
        piece_parts = [(piece, part) for piece, part in parts if part is not None]
        return replace(begun, parts=[part for _, part in piece_parts], owners=[piece for piece, _ in piece_parts])

    def _frozen(self) -> Network:
        return deepcopy(self._network).requires_grad_(False)

    def _optimiser(self, previous_state: Mapping[str, NDArray[Any]], round_number: int) -> torch.optim.Optimizer:
        rates = [rate for piece in self._method.pieces if (rate := piece.classifier_rate) is not None]
        optimiser: torch.optim.Optimizer = self._local.optimiser.build(
            self._network,
            decay_classifier=all(piece.decays_classifier for piece in self._method.pieces),
            classifier_rate=rates[0] if rates else None,
            done=self._run.share_done(round_number),
            epochs=self._run.rounds_done(round_number) * self._local.epochs,
            buffers=self._networks.momentum,
        )
        check_kind(self._local.optimiser, "build", optimiser, torch.optim.Optimizer, "a torch.optim.Optimizer")
        if self._local.optimiser.persists:
            self._local.optimiser.remember(self._network, optimiser, previous_state)
        return optimiser

    def _take_steps(
        self,
        silo_round: SiloRound,
        work: Work,
        optimiser: torch.optim.Optimizer,
        progress: Callable[[int, int], int],
        checkpoint: TaskCheckpoint,
    ) -> tuple[float, int]:
        method = self._method
        resumes = work.resumes and method.local_loss.resumes and method.regulariser.resumes
        resumes &= method.local.cycle is None and all(part.resumes for part in silo_round.parts)
        divides = resumes and work.divides and self._dp_sgd is None
        if not divides and self._devices.count > 1:
            if not self._devices.leads:
                return 0.0, 0
            _log.warning("task of round %d trains on one device: %s", silo_round.draws.round, _UNDIVIDED)
        if self._dp_sgd is not None:
            return self._dp_sgd.take_steps(silo_round, work, optimiser, progress)
        losses = work.losses
        for part, piece in zip(silo_round.parts, silo_round.owners, strict=True):
            if type(part).losses is not RoundPart.losses:
                losses = checked_losses(part.losses(losses), piece, "losses", silo_round.sample_outputs)
        training_progress = checkpoint.restore(self._network, optimiser, work)
        self._devices.begin(self._network, divides=divides, steps=work.steps, done=training_progress.losses)

        def after_step(done: int) -> None:
            work.after_step()
            checkpoint.step(self._network, optimiser, work, training_progress, resumes)
            progress(done, work.steps)

        unwatched = () if self._device.type == "cpu" else method.loss_pieces  # on a GPU after the first step
        with suspecting(*unwatched):
            return take_steps(
                self._network,
                optimiser,
                losses,
                expected=work.steps,
                clip_norm=float(self._local.optimiser.clip_norm),
                accumulation=self._method.local.accumulation,
                after_step=after_step,
                progress=training_progress,
                devices=self._devices,
            )

    def _carry_over(
        self, silo_round: SiloRound, optimiser: torch.optim.Optimizer, steps: int
    ) -> Mapping[str, NDArray[Any]]:
        if not steps:  # an inactive round hands on what there was
            return {name: array for name, array in silo_round.kept.items() if name != _VALIDATION}
        optimiser_piece = self._local.optimiser
        memory = (
            checked_arrays(optimiser_piece, "memory", optimiser_piece.memory(self._network, optimiser))
            if optimiser_piece.persists
            else {}
        )
        return {**local_arrays(self._network), **memory, **silo_round.of_parts("kept")}

    def _guesses_validation(self) -> bool:
        if not self._task.one_of_several:  # pseudo-labels of findings and pixels score no model
            return False
        validation = self._images.labels[self._images.validation]
        return len(validation) > 0 and not is_known(validation).any() and self._method.pseudo_labels.labels_images

    def _label_validation(self, round_number: int, silo_round: SiloRound) -> Mapping[str, NDArray[np.int64]]:
        if not self._guesses_validation():
            return {}
        labels, accepted = self._method.pseudo_labels.checked_labels(silo_round, self._images.validation)
        validation_labels = torch.where(accepted, labels, -1).cpu().numpy()
        self._labels.publish(round_number, validation_labels)
        return {_VALIDATION: validation_labels}

    def _validation_labels(self, round_number: int) -> Labels:
        true = self._images.labels[self._images.validation]
        if not self._guesses_validation():
            return true
        validation_labels = self._labels.of(round_number)
        if validation_labels is None:
            validation_labels = self._state.of(round_number).get(_VALIDATION)
        return true if validation_labels is None else validation_labels

    def _score(self, network: Network, round_number: int) -> NDArray[np.int64] | None:
        return self._validate(network, round_number)[1]

    def _validated_on(self, round_number: int) -> tuple[float, NDArray[np.int64] | None]:
        """Validate the network in training, in eval mode."""
        training = self._network.training
        self._network.eval()
        loss, counts, _ = self._validate(self._network, round_number)
        self._network.train(training)
        return loss, counts

    def _validate(self, network: Network, round_number: int) -> tuple[float, NDArray[np.int64] | None, int]:
        """Return the task's mean loss on the validation split, 0 without a label there, what the weighting counts of it, and of how many images."""
        labels = self._validation_labels(round_number)
        known = is_known(labels)
        if self._task.gives_maps:
            activated, loss = self._scored_maps(network, self._images.validation[known], labels[known])
        else:
            logits, activated = self._activate(network, self._images.validation[known])
            loss = 0.0
        if known.any() and not self._task.gives_maps:
            loss = float(self._task.loss(logits, self._images.views.to_device(labels[known])))
        piece = self._method.weighting
        counts = piece.tally(labels[known], activated)
        check_kind(piece, "tally", counts, (np.ndarray, NoneType), "an array of counts, int64, or None")
        return loss, counts, int(known.sum())

"""The server's learner: what happens to the global model on the server's labelled images (`anchorage.engine.interfaces.ServerLearner`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch import nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import ANCHORS_MISSING, LOSS_NOT_FINITE, MODEL_MISMATCH
from anchorage.api.federation import Embeddings
from anchorage.api.method import ResolvedMethod
from anchorage.api.metric_names import LOSS
from anchorage.api.model import ModelDescription
from anchorage.api.model_card import Assessment
from anchorage.api.piece_faults import describe_value, wrong_result
from anchorage.learning.data import ImageSet
from anchorage.learning.data.labels import is_known
from anchorage.learning.device import calculation, to_device
from anchorage.learning.draws import Draws
from anchorage.learning.encoded_views import views_of
from anchorage.learning.hook_checks import check_kind, checked_arrays, checked_metrics
from anchorage.learning.hooks import ServerTrainer, expect
from anchorage.learning.layer_outputs import layer_outputs, require_layer
from anchorage.learning.local_training import Labelled
from anchorage.learning.loss_checks import suspecting
from anchorage.learning.map_scores import scored_maps, shown_maps
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import Scored, TaskHooks
from anchorage.learning.models import (
    CLASSIFIER,
    COMPONENTS,
    ENCODER,
    GAUSSIAN,
    GUESSERS,
    HIDDEN,
    Network,
    build_model,
    network_of,
)
from anchorage.learning.networks.zoo import ZooEncoder
from anchorage.learning.probe import linear_probe
from anchorage.learning.server_round import ServerRound
from anchorage.learning.views import Views
from anchorage.learning.weights import down_layout, load_arrays, load_model, up_layout, write
from anchorage.transport.messages import AuxiliaryData, Report
from anchorage.transport.tensors.layout import SCORING, Layout
from anchorage.transport.tensors.model import ModelBytes

EMBEDDED_IMAGES = 500
"""Images whose embeddings a report carries."""
EXAMPLES = 6
"""Validation images that a picture of a task's predictions shows."""
KEPT_TESTS = 2
"""Models whose outputs on the test images are kept: the final and the best one are assessed after they were tested."""


@dataclass(frozen=True, slots=True)
class _Outputs:
    """What a model makes of n images."""

    activated: NDArray[Any]
    """What the task makes of the head's outputs, float64 [n, outputs]; of maps what it scores them by."""
    loss: float
    """The task's mean loss."""
    features: NDArray[np.float32]
    """Embeddings of those that a report carries, [m, d]."""


class TorchServerLearner:
    """Trains and scores the global model at the server. `evaluate` and `test` may run beside the other methods in another thread.

    Every round's training is a function of the model, the round and `state` alone (its momentum starts anew), so a server that was killed
    repeats it to the same bytes.

    Parameters
    ----------
    model : ModelDescription
        The network.
    method : ResolvedMethod
        The method.
    seed : int
        The run's seed.
    images : mapping of str to ImageSet or None
        Labelled images at the server, by what they are for: ``anchors``, ``validation``, ``test``.
    device : torch.device
        Where to train.
    initial : Path or None
        Safetensors file with the weights to start from.
    rounds : int
        The method's last round, at which a cosine schedule ends.
    after : int
        The last round of the stage before.
    embeddings : Path, optional
        Where embeddings are kept for other runs.
    pictured : Embeddings, optional
        Layer and number of validation images whose outputs a report carries; else it carries what the classifier sees.

    Raises
    ------
    AnchorageError
        The method needs anchors of every class and has none, or images are not of the model's size.
    """

    def __init__(
        self,
        model: ModelDescription,
        method: ResolvedMethod,
        seed: int,
        images: Mapping[str, ImageSet | None],
        device: torch.device,
        initial: Path | None,
        rounds: int = 0,
        after: int = 0,
        embeddings: Path | None = None,
        pictured: Embeddings | None = None,
    ) -> None:
        self._embeddings, self._pictured = embeddings, pictured
        self._model, self._seed, self._device, self._initial = model, seed, device, initial
        self._task = expect(model.task, TaskHooks)
        self._rounds, self._after = rounds, after
        self._method = TrainingMethod.of(method)
        self._network = build_model(model, self._method, seed)
        self._down = down_layout(self._network, self._method)
        self._up = up_layout(self._down, self._method)
        to_device(self._network, device)
        self._anchors = self._prepare_labelled(images.get("anchors"))
        self._scored = {name: self._prepare_labelled(images.get(name)) for name in ("validation", "test")}
        self._groups = {name: _groups(images.get(name)) for name in self._scored}
        self._scorer: Network | None = None
        self._tested: dict[tuple[str, int], NDArray[Any]] = {}
        self._scoring = Lock()
        chooses = self._method.pseudo_labels.validated or self._method.server_training.validated
        validation = self._prepare_labelled(images.get("validation")) if chooses else None
        self._round = ServerRound(model, self._method, self._network, self._down, self._anchors, seed, validation)
        self._trainer = self._new_trainer()
        judged = any(scored_images is not None for scored_images in (self._anchors, *self._scored.values()))
        self._finishes = any(piece.finishes_model(judged=judged) for piece in self._method.pieces)
        self._check_anchors()
        if pictured is not None:
            require_layer(self._network, pictured.layer)

    @property
    def down(self) -> Layout:
        """Layout of the global model, as it travels down."""
        return self._down

    @property
    def up(self) -> Layout:
        """Layout of an update: `down` without the anchor head."""
        return self._up

    def _prepare_labelled(self, images: ImageSet | None) -> Labelled | None:
        if images is None or not is_known(images.labels).any():
            return None
        shape = self._model.input_shape
        if images.images.shape[1:] != shape:
            raise AnchorageError(MODEL_MISMATCH, f"the images are {images.images.shape[1:]}, the model takes {shape}")
        known = np.flatnonzero(is_known(images.labels))
        return Labelled(
            views_of(
                images.images[known], self._model, self._method, self._device, Draws(self._seed), self._embeddings
            ),
            np.arange(len(known)),
            images.labels[known],
            images.unannotated,
        )

    def _check_anchors(self) -> None:
        method = self._method
        trains = method.server_training.trains and method.server_training.needs_anchors
        if not (self._finishes or trains or method.pseudo_labels.anchor_head):
            return
        if self._anchors is None:
            raise AnchorageError(
                ANCHORS_MISSING, f"{method.resolved.name} needs labelled anchors at the server: give spec.anchorData"
            )
        if not method.pseudo_labels.anchor_head:
            return
        counts = np.bincount(self._anchors.labels, minlength=self._model.num_outputs)
        if not counts.all():
            missing = ", ".join(map(str, np.flatnonzero(counts == 0)[:10]))
            raise AnchorageError(
                ANCHORS_MISSING, f"no anchor of class {missing}: add labelled images to spec.anchorData"
            )

    def initialise(self) -> ModelBytes:
        """Return the model of round 0: seeded or from the file, then pre-trained on the anchors where the method says so.

        Raises
        ------
        AnchorageError
            The file is not of this model, or a loss is not finite.
        """
        with calculation():
            self._network.load_state_dict(build_model(self._model, self._method, self._seed).state_dict())
            self._network.front = ()
            if self._initial is not None:
                self._load_file(self._initial)
            return self._pretrain()

    def adopt(self, model: ModelBytes) -> ModelBytes:
        """Return the model that this stage begins with, made of the last one of the stage before.

        Tensors are taken over by name where shape and dtype are the same; the others are drawn from the seed. A plain head that the stage
        before did not have begins as its classifier: labels by an untrained head would ruin what was learnt. Then the model is pre-trained
        as in `initialise`.

        Raises
        ------
        AnchorageError
            A loss is not finite.
        """
        with calculation():
            fresh = build_model(self._model, self._method, self._seed)
            fresh_arrays = {name: tensor.numpy() for name, tensor in fresh.state_dict().items()}
            known = {name: a for name, a in model.arrays().items() if name in fresh_arrays}
            if GAUSSIAN in model.layout.by_name.keys() - fresh_arrays.keys():  # whose weights are no linear map
                known = {name: a for name, a in known.items() if not name.startswith(CLASSIFIER)}
            same = {
                n: a for n, a in known.items() if (a.shape, a.dtype) == (fresh_arrays[n].shape, fresh_arrays[n].dtype)
            }
            load_arrays(self._network, {**fresh_arrays, **same})
            for piece in self._method.pieces:
                piece.adopted(self._network, frozenset(same))
            return self._pretrain()

    def _pretrain(self) -> ModelBytes:
        self._trainer = self._new_trainer()
        if self._down.front:
            self._round.take(self._bytes())
        self._round.before_rounds()
        with suspecting(self._method.server_training):
            self._trainer.pretrain(self._round)
        self._finish(self._network)
        return self._bytes()

    def _new_trainer(self) -> ServerTrainer:
        piece = self._method.server_training
        return check_kind(piece, "trainer", piece.trainer(self._method), ServerTrainer, "a ServerTrainer")

    def _finish(self, network: Network) -> None:
        if self._finishes:
            for piece in self._method.pieces:
                piece.finish_training(self._round, network)

    def _load_file(self, path: Path) -> None:
        try:
            arrays, encoder = load_file(path), self._network.encoder
            state = {name: tensor.cpu().numpy() for name, tensor in self._network.state_dict().items()}
            drawn = {name: array for name, array in state.items() if name == GAUSSIAN or name.startswith(GUESSERS)}
            if isinstance(encoder, ZooEncoder) and (known := encoder.of_library(arrays)) is not None:
                drawn = {name: array for name, array in state.items() if not name.startswith("encoder.")}
                arrays = known
            elif any(name.startswith(ENCODER) for name in arrays):
                # heads that only helped another method's training are left out
                arrays = {name: array for name, array in arrays.items() if name in state or name.startswith(SCORING)}
                for name in [n for n in arrays if n.startswith(GUESSERS) and arrays[n].shape != state[n].shape]:
                    del arrays[name]  # of other ways to count
                layers = [layer for layer in (HIDDEN, COMPONENTS[0]) if layer in state and layer not in arrays]
                if COMPONENTS[0] in layers and not self._method.server_training.finds_components:
                    message = "it has no principal components; let spec.warmUp begin with PrincipalComponents"
                    raise AnchorageError(MODEL_MISMATCH, message)
                if layers:
                    # its classifier saw the encoder, here it sees the hidden layer, or components
                    drawn = {name: array for name, array in state.items() if not name.startswith(ENCODER)}
                    arrays = {name: array for name, array in arrays.items() if name.startswith(ENCODER)}
            load_arrays(self._network, {**drawn, **arrays})
        except (
            OSError,
            SafetensorError,
            TypeError,
            AnchorageError,
        ) as error:  # TypeError: bfloat16, which numpy has not
            reason = error.message if isinstance(error, AnchorageError) else str(error)
            message = f"{path} does not hold the weights of this {self._model.network} ({reason}); give spec.model another start"
            raise AnchorageError(MODEL_MISMATCH, message) from error
        for piece in self._method.pieces:
            piece.adopted(self._network, frozenset(arrays))

    def auxiliary_data(self, model: ModelBytes, round_number: int) -> AuxiliaryData:
        """Return what travels down beside the model."""
        sent = [array for piece in self._method.pieces for array in piece.auxiliary() if not array.up]
        auxiliary_data: AuxiliaryData = {}
        for piece in self._method.pieces:
            arrays = piece.server_auxiliary(self._round, model)
            auxiliary_data = {**auxiliary_data, **checked_arrays(piece, "server_auxiliary", arrays, sent)}
        return auxiliary_data

    def train(self, model: ModelBytes, round_number: int) -> tuple[ModelBytes, Mapping[str, float]]:
        """Train on the anchors, where the method does.

        Returns
        -------
        model : ModelBytes
            The same one where the method does not train at the server.
        metrics : mapping of str to float
            Those of the method's pieces, such as ``server_loss``.
        """
        metrics: Mapping[str, float] = {}
        if self._method.server_training.trains or self._finishes:
            with calculation():
                self._round.begin(model, round_number, self._rounds, self._after)
                piece = self._method.server_training
                with suspecting(piece):
                    metrics = checked_metrics(piece, "train of its trainer", self._trainer.train(self._round))
                self._finish(self._network)
                model = self._bytes(model)
        for each in self._method.pieces:
            metrics = {**metrics, **checked_metrics(each, "server_metrics", each.server_metrics(self._round, model))}
        return model, metrics

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return what the next round's training needs beside the model."""
        return checked_arrays(self._method.server_training, "state of its trainer", self._trainer.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        with calculation():
            self._trainer.restore(self._round, state)

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        """Score a model on the validation images in eval mode; an empty report where there are none.

        Where nobody trains the classifier (self-supervised methods) a linear probe on the anchors takes its place; without anchors the report
        is empty.

        Raises
        ------
        AnchorageError
            The model's outputs are not finite.
        """
        return self._score(model, "validation", round_number)

    def test(self, model: ModelBytes, round_number: int) -> Report:
        """Score a model on the test images, as `evaluate` does on others."""
        return self._score(model, "test", round_number)

    def assess(self, model: ModelBytes, round_number: int) -> Assessment | None:
        """Score a model in full on the test images, else the validation images; None where `evaluate` and `test` have nothing to say.

        Raises
        ------
        AnchorageError
            The model's outputs are not finite.
        """
        part: Literal["test", "validation"] = "validation" if self._scored["test"] is None else "test"
        scored = self._score_part(part, model, round_number)
        if scored is None:
            return None
        validation = None
        if self._task.chooses_thresholds:
            validation = scored if part == "validation" else self._score_part("validation", model, round_number)
        return self._task.assessment(scored, Draws(self._seed).numpy("resampling"), validation)

    def examples(self, model: ModelBytes, round_number: int) -> NDArray[np.uint8] | None:
        """Return a picture of `EXAMPLES` validation images with what is true and predicted, uint8 [h, w, 3]; None: there are none, or none are drawn.

        Raises
        ------
        AnchorageError
            The model's outputs are not finite.
        """
        images = self._scored["validation"]
        if images is None or not self._task.draws_examples:
            return None
        rows = np.unique(np.linspace(0, len(images.labels) - 1, EXAMPLES).astype(np.int64))
        with calculation(), self._scoring:
            network = self._scoring_network(model, images.views)
            maps = shown_maps(network, images.views, self._task, images.indices[rows], images.labels[rows])
        if not maps.finite:
            raise self._not_finite("validation", round_number)
        return self._task.examples(maps.pixels, maps.labels, maps.maps)

    def _score_part(self, part: Literal["test", "validation"], model: ModelBytes, round_number: int) -> Scored | None:
        """Return what a model makes of a part's images, for an assessment; None where it is not scored on them."""
        images = self._scored[part]
        known = part == "test" and not self._task.gives_maps
        activated = self._tested.get((model.digest, round_number)) if known else None
        if activated is None and (outputs := self._outputs(model, part, round_number, in_full=True)) is not None:
            activated = outputs.activated
        return (
            None if activated is None or images is None else Scored(part, images.labels, activated, self._groups[part])
        )

    def _score(self, model: ModelBytes, part: str, round_number: int) -> Report:
        outputs, images = self._outputs(model, part, round_number), self._scored[part]
        if outputs is None or images is None:
            return Report({})
        if part == "test":
            self._tested = dict(
                [*self._tested.items(), ((model.digest, round_number), outputs.activated)][-KEPT_TESTS:]
            )
        evaluated = self._task.evaluate(images.labels, outputs.activated)
        metrics = {LOSS: outputs.loss, **checked_metrics(self._task, "evaluate", evaluated)}
        tally = checked_arrays(self._task, "tally", self._task.tally(images.labels, outputs.activated))
        shown = self._draw(part, len(images.labels))
        coloured = self._task.true_and_predicted(images.labels[shown], outputs.activated[shown])
        embeddings = np.column_stack([coloured, outputs.features])
        layer = self._pictured.layer if self._pictured and part == "validation" else ""
        return Report(metrics, tally, embeddings.astype(np.float32), layer)

    def _draw(self, part: str, count: int) -> NDArray[np.int64]:
        """Return the images of a part whose embeddings a report carries, ascending."""
        most = self._pictured.images if self._pictured and part == "validation" else EMBEDDED_IMAGES
        return np.sort(Draws(self._seed).numpy("embeddings").permutation(count)[:most])

    def _outputs(self, model: ModelBytes, part: str, round_number: int, *, in_full: bool = False) -> "_Outputs | None":
        """Return what a model makes of a part's images, `in_full` for an assessment; None where there are none, or nothing to tell classes by.

        Raises
        ------
        AnchorageError
            They are not finite.
        """
        images = self._scored[part]
        if images is None or (self._probed and self._anchors is None):
            return None
        with calculation(), self._scoring:
            network = self._scoring_network(model, images.views)
            if network.gives_maps:
                return self._forward_maps(network, images, part, round_number, in_full=in_full)
            return self._forward(network, images, part, round_number)

    def _scoring_network(self, model: ModelBytes, views: Views) -> Network:
        """Return a network with a model's weights as it is evaluated; `_scoring` is held."""
        if self._scorer is None:
            self._scorer = to_device(build_model(self._model, self._method, self._seed), self._device)
        load_model(self._scorer, model)
        views.encoded_by(self._scorer)
        for piece in self._method.pieces:
            piece.before_scoring(self._round, self._scorer)
        return self._scorer

    def _forward_maps(
        self, network: Network, images: Labelled, part: str, round_number: int, *, in_full: bool
    ) -> "_Outputs":
        """Do what `_forward` does where the network gives maps, of which only what the task scores by is kept."""
        views, task = images.views, self._task.partly_annotated(images.unannotated)
        scored, loss, finite = scored_maps(network, views, task, images.indices, images.labels, in_full=in_full)
        if not finite:
            raise self._not_finite(part, round_number)
        drawn = images.indices[self._draw(part, len(images.labels))]
        pictured = self._pictured if part == "validation" else None
        outputs = network.embed if pictured is None else layer_outputs(network, pictured.layer)
        rows = views.map_batches(drawn, lambda i: outputs(views.plain(i)))
        return _Outputs(scored, loss, rows.float().cpu().numpy())

    def _not_finite(self, part: str, round_number: int) -> AnchorageError:
        message = (
            f"the model of round {round_number} gives NaN on the {part} images: lower learningRate or set clipNorm"
        )
        return AnchorageError(LOSS_NOT_FINITE, message)

    def _forward(self, network: Network, images: Labelled, part: str, round_number: int) -> "_Outputs | None":
        features = images.views.map_batches(images.indices, lambda i: network.represent(images.views.plain(i)))
        classifier = self._probe(network, round_number) if self._probed else network.classifier
        if self._probed and not bool(classifier.weight.isfinite().all()):
            return None  # the probe's step is too large for these features, which is no fault of the model
        with torch.no_grad():
            task = self._task
            logits = classifier(features).double()
            activated = task.activated(logits).cpu().numpy()
            loss = float(task.loss(logits, images.views.to_device(images.labels)))
        due = (len(images.indices), self._model.num_outputs)
        if activated.shape != due:
            raise wrong_result(task, "activated", describe_value(activated), f"numbers of shape {list(due)}")
        if not np.isfinite(activated).all():
            if bool(logits.isfinite().all()):
                raise wrong_result(task, "activated", "NaN for finite outputs of the head", "finite numbers")
            if self._is_untrained(round_number) and all(bool(p.isfinite().all()) for p in network.parameters()):
                detail = "outputs that are not finite, of a network with finite weights that nobody trained"
                raise wrong_result(network_of(self._model), "encoder", detail, "an encoder with finite outputs")
            raise self._not_finite(part, round_number)
        drawn = self._draw(part, len(images.labels))
        if self._pictured is None or part != "validation":
            return _Outputs(activated, loss, features.cpu().numpy()[drawn])
        outputs = layer_outputs(network, self._pictured.layer)
        rows = images.views.map_batches(images.indices[drawn], lambda i: outputs(images.views.plain(i)))
        return _Outputs(activated, loss, rows.float().cpu().numpy())

    def _is_untrained(self, round_number: int) -> bool:
        return round_number == 0 and self._initial is None and not self._method.server_training.trains

    @property
    def _probed(self) -> bool:
        return not self._method.trains_classifier

    def _probe(self, network: Network, round_number: int) -> nn.Linear:
        data, views = self._round.needed, self._round.needed.views
        features = views.map_batches(data.indices, lambda i: network.represent(views.plain(i)))
        labels = views.to_device(data.labels)
        return linear_probe(features, labels, self._task, Draws(self._seed, round_number))

    def _bytes(self, model: ModelBytes | None = None) -> ModelBytes:
        layout = self._down if model is None else self._down.trainable
        buffer = np.empty(layout.nbytes, np.uint8)
        extra_arrays: dict[str, NDArray[Any]] = {}
        for piece in self._method.pieces:
            extra_arrays |= checked_arrays(piece, "travels_beside", piece.travels_beside(layout, model))
        write(self._network, layout, lambda nbytes: buffer, extra_arrays)
        written = ModelBytes.of(layout, buffer)
        return written if model is None else model.with_tensors(written)


def _groups(images: ImageSet | None) -> NDArray[np.int64]:
    """Return the number of each labelled image's patient or lesion, [n]."""
    if images is None:
        return np.zeros(0, np.int64)
    names = np.array(images.groups, dtype=object)[is_known(images.labels)]
    return np.unique(names, return_inverse=True)[1].astype(np.int64)

"""The server's learner: what happens to the global model on the server's labelled images (`anchorage.engine.interfaces.ServerLearner`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import ANCHORS_MISSING, MODEL_MISMATCH
from anchorage.api.federation import Embeddings
from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.api.model_card import Assessment
from anchorage.learning.data import ImageSet
from anchorage.learning.data.labels import is_known
from anchorage.learning.device import calculation, to_device
from anchorage.learning.draws import Draws
from anchorage.learning.encoded_views import views_of
from anchorage.learning.heads import PrincipalComponents
from anchorage.learning.hook_checks import check_kind, checked_arrays, checked_metrics
from anchorage.learning.hooks import ServerTrainer
from anchorage.learning.layer_outputs import require_layer
from anchorage.learning.local_training import Labelled
from anchorage.learning.loss_checks import suspecting
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.network import CLASSIFIER, ENCODER, PROJECTION, Network
from anchorage.learning.networks.zoo import ZooEncoder
from anchorage.learning.server_round import ServerRound
from anchorage.learning.server_scoring import ServerScoring
from anchorage.learning.weights import down_layout, load_arrays, up_layout, write
from anchorage.transport.messages import AuxiliaryData, Report
from anchorage.transport.tensors.layout import SCORING, Layout
from anchorage.transport.tensors.model import ModelBytes


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
        self._embeddings = embeddings
        self._model, self._seed, self._device, self._initial = model, seed, device, initial
        self._rounds, self._after = rounds, after
        self._method = TrainingMethod.of(method)
        self._network = build_model(model, self._method, seed)
        self._down = down_layout(self._network, self._method)
        self._up = up_layout(self._down, self._method)
        to_device(self._network, device)
        self._anchors = self._prepare_labelled(images.get("anchors"))
        self._scored = {name: self._prepare_labelled(images.get(name)) for name in ("validation", "test")}
        chooses = self._method.pseudo_labels.validated or self._method.server_training.validated
        validation = self._prepare_labelled(images.get("validation")) if chooses else None
        self._round = ServerRound(model, self._method, self._network, self._down, self._anchors, seed, validation)
        self._trainer = self._new_trainer()
        self._scores = ServerScoring(
            model,
            self._method,
            seed,
            images,
            self._scored,
            self._round,
            device,
            untrained=initial is None and not self._method.server_training.trains,
            pictured=pictured,
        )
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
        if not (self._finishes or trains or method.pseudo_labels.needs_every_class):
            return
        if self._anchors is None:
            raise AnchorageError(
                ANCHORS_MISSING, f"{method.resolved.name} needs labelled anchors at the server: give spec.anchorData"
            )
        if not method.pseudo_labels.needs_every_class:
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
            if any(name.startswith(CLASSIFIER) for name in model.layout.by_name.keys() - fresh_arrays.keys()):
                # of another kind, such as one with covariances, whose weights are no linear map
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
            arrays, encoder, resizable = load_file(path), self._network.encoder, self._network.resizable
            state = {name: tensor.cpu().numpy() for name, tensor in self._network.state_dict().items()}
            drawn: Mapping[str, NDArray[Any]] = {}
            if isinstance(encoder, ZooEncoder) and (known := encoder.of_library(arrays)) is not None:
                drawn = {name: array for name, array in state.items() if not name.startswith("encoder.")}
                arrays = known
            elif any(name.startswith(ENCODER) for name in arrays):
                # heads that only helped another method's training are left out
                arrays = {name: array for name, array in arrays.items() if name in state or name.startswith(SCORING)}
                unlike = [n for n in arrays if n.startswith(resizable) and arrays[n].shape != state[n].shape]
                arrays = {name: array for name, array in arrays.items() if name not in unlike}
                if any(name.startswith(PROJECTION) for name in state.keys() - arrays.keys()):
                    self._require_components()
                    # its classifier saw the encoder, here it sees what stands before it
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

    def _require_components(self) -> None:
        """Refuse a start without principal components where nobody finds them."""
        is_found = self._method.server_training.finds_components
        if isinstance(self._network.projection, PrincipalComponents) and not is_found:
            message = "it has no principal components; let spec.warmUp begin with PrincipalComponents"
            raise AnchorageError(MODEL_MISMATCH, message)

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
        """Score a model on the validation images; as `ServerScoring.score`."""
        return self._scores.score(model, "validation", round_number)

    def test(self, model: ModelBytes, round_number: int) -> Report:
        """Score a model on the test images; as `ServerScoring.score`."""
        return self._scores.score(model, "test", round_number)

    def assess(self, model: ModelBytes, round_number: int) -> Assessment | None:
        """Score a model in full; as `ServerScoring.assess`."""
        return self._scores.assess(model, round_number)

    def examples(self, model: ModelBytes, round_number: int) -> NDArray[np.uint8] | None:
        """Return a picture of predictions; as `ServerScoring.examples`."""
        return self._scores.examples(model, round_number)

    def _bytes(self, model: ModelBytes | None = None) -> ModelBytes:
        layout = self._down if model is None else self._down.trainable
        buffer = np.empty(layout.nbytes, np.uint8)
        extra_arrays: dict[str, NDArray[Any]] = {}
        for piece in self._method.pieces:
            extra_arrays |= checked_arrays(piece, "travels_beside", piece.travels_beside(layout, model))
        write(self._network, layout, lambda nbytes: buffer, extra_arrays)
        written = ModelBytes.of(layout, buffer)
        return written if model is None else model.with_tensors(written)

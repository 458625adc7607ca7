"""The server's learner: what happens to the community model on the server's labelled images (`anchorage.rounds.interfaces.ServerLearner`)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch import Tensor

from anchorage.data import ImageSet
from anchorage.data.augmentation import AUGMENTATIONS
from anchorage.errors import AnchorageError
from anchorage.errors.learning import ANCHORS_MISSING, LOSS_NOT_FINITE, MODEL_MISMATCH
from anchorage.learning.contrastive import balanced_batches, label_contrastive
from anchorage.learning.device import calculation
from anchorage.learning.draws import Draws
from anchorage.learning.local_training import Batching, Labelled, fix_mix_losses, strong_losses
from anchorage.learning.metrics import classification_metrics, confusion_matrix
from anchorage.learning.models import Network, build_model
from anchorage.learning.pseudo_labels import class_prototypes, unit_rows
from anchorage.learning.similarity import build_random_anchor, fingerprint
from anchorage.learning.stepping import build_optimiser, take_steps
from anchorage.learning.views import Views
from anchorage.learning.weights import layout_of, load, load_arrays, upward, write
from anchorage.messages import Report, SideChannel
from anchorage.spec.method import ResolvedMethod
from anchorage.spec.model import ModelSpec
from anchorage.tensors.layout import Layout
from anchorage.tensors.model import ModelBytes

EMBEDDED_IMAGES = 500
"""Test images whose embeddings a report carries."""


class TorchServerLearner:
    """Trains and evaluates the community model at the server. `evaluate` may run beside the other methods in another thread.

    Every round's training is a function of the model and the round alone (its momentum starts anew), so a server that was killed
    repeats it to the same bytes.

    Parameters
    ----------
    model : ModelSpec
        The network.
    method : ResolvedMethod
        The method.
    seed : int
        The run's seed.
    anchors, test : ImageSet or None
        Labelled images at the server.
    device : torch.device
        Where to train.
    initial : Path or None
        Safetensors file with the weights to start from.

    Raises
    ------
    AnchorageError
        The method needs anchors of every class and has none, or images are not of the model's size.
    """

    def __init__(
        self,
        model: ModelSpec,
        method: ResolvedMethod,
        seed: int,
        anchors: ImageSet | None,
        test: ImageSet | None,
        device: torch.device,
        initial: Path | None,
    ) -> None:
        self._model, self._method, self._seed, self._device, self._initial = model, method, seed, device, initial
        self._network = build_model(model, method, seed)
        self._down = layout_of(self._network)
        self._up = upward(self._down)
        self._network.to(device).eval()
        self._anchors = self._labelled(anchors)
        self._test = self._labelled(test)
        self._scorer: Network | None = None
        self._scoring = Lock()
        self._check_anchors()

    @property
    def down(self) -> Layout:
        """Layout of the community model, as it travels down."""
        return self._down

    @property
    def up(self) -> Layout:
        """Layout of an update: `down` without the anchor head."""
        return self._up

    def _labelled(self, images: ImageSet | None) -> Labelled | None:
        if images is None or not (images.labels >= 0).any():
            return None
        shape = (self._model.channels, self._model.image_size, self._model.image_size)
        if images.images.shape[1:] != shape:
            raise AnchorageError(MODEL_MISMATCH, f"the images are {images.images.shape[1:]}, the model takes {shape}")
        known = np.flatnonzero(images.labels >= 0)
        return Labelled(
            Views(images.images[known], AUGMENTATIONS[self._model.augmentation], self._device),
            np.arange(len(known)),
            images.labels[known],
        )

    def _check_anchors(self) -> None:
        method = self._method
        if method.pseudo_labels.type != "AnchorSimilarity" and method.server_training.type == "None":
            return
        if self._anchors is None:
            raise AnchorageError(
                ANCHORS_MISSING, f"{method.name} needs labelled anchors at the server: give spec.anchorData"
            )
        counts = np.bincount(self._anchors.labels, minlength=self._model.num_classes)
        if method.pseudo_labels.type == "AnchorSimilarity" and not counts.all():
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
            if self._initial is not None:
                self._load_file(self._initial)
            server = self._method.server_training
            if server.type == "Anchors" and server.pretrain_epochs:
                draws = Draws(self._seed)
                rate = float(server.pretrain_learning_rate)
                sgd = build_optimiser(self._network, server.optimiser, learning_rate=rate)
                losses = strong_losses(self._network, self._needed, self._batching(server.pretrain_epochs), draws)
                take_steps(self._network, sgd, losses, clip_norm=float(server.optimiser.clip_norm))
            return self._bytes()

    def _load_file(self, path: Path) -> None:
        try:
            arrays = load_file(path)
        except (OSError, SafetensorError) as error:
            message = f"{path}: not a readable safetensors file ({error}); give spec.model.initial another"
            raise AnchorageError(MODEL_MISMATCH, message) from error
        load_arrays(self._network, arrays)

    @property
    def _needed(self) -> Labelled:
        assert self._anchors is not None, "checked when the learner was made"
        return self._anchors

    def _batching(self, epochs: int) -> Batching:
        count, size = len(self._needed.indices), self._method.server_training.batch_size
        if size == 0:
            size = 10 if count <= 250 else 250
        return Batching(epochs, size, self._network.smallest_batch(self._model.image_size))

    def side_channel(self, model: ModelBytes, round_number: int) -> SideChannel:
        """Return what travels down beside the model.

        FedAnchor: ``prototypes`` float32 [C, 128] (NaN rows for classes without anchors), or ``anchors`` float32 [S, 128] of unit length
        and ``anchor_labels`` int64 [S]. SemiAnAgg: ``random_anchor`` uint8 [32], SHA-256 of the random encoder's weights.
        """
        side: dict[str, NDArray[np.float32] | NDArray[np.int64] | NDArray[np.uint8]] = {}
        with calculation():
            if self._method.weighting.type == "SemiAnAgg":
                encoder = build_random_anchor(self._model.name, self._model.channels, self._seed)
                side["random_anchor"] = np.frombuffer(fingerprint(encoder), np.uint8)
            if self._method.pseudo_labels.type != "AnchorSimilarity":
                return side
            load(self._network, self._down, model.buffer())
            data, views = self._needed, self._needed.views
            units = unit_rows(views.mapped(data.indices, lambda i: self._network.anchor(views.plain(i))))
            if self._method.pseudo_labels.anchors == "Raw":
                return {**side, "anchors": units.cpu().numpy(), "anchor_labels": data.labels}
            prototypes, present = class_prototypes(units, views.to_device(data.labels), self._model.num_classes)
            return {**side, "prototypes": prototypes.masked_fill(~present[:, None], torch.nan).cpu().numpy()}

    def train(self, model: ModelBytes, round_number: int) -> tuple[ModelBytes, Mapping[str, float]]:
        """Train on the anchors: epochs of cross entropy or L_fix + L_mix, then label contrastive epochs (METHODS.md 6.8).

        Returns
        -------
        model : ModelBytes
            The same one where the method does not train at the server.
        metrics : mapping of str to float
            ``server_loss``, and ``contrastive_loss`` where there is one.
        """
        server = self._method.server_training
        if server.type == "None":
            return model, {}
        with calculation():
            load(self._network, self._down, model.buffer())
            draws = Draws(self._seed, round_number)
            sgd = build_optimiser(self._network, server.optimiser)
            clip = float(server.optimiser.clip_norm)
            loss, _ = take_steps(self._network, sgd, self._classification(draws), clip_norm=clip)
            metrics = {"server_loss": loss}
            if server.contrastive == "Enabled":
                contrast, _ = take_steps(self._network, sgd, self._contrastive(draws), clip_norm=clip)
                metrics["contrastive_loss"] = contrast
            return self._bytes(), metrics

    def _classification(self, draws: Draws) -> Iterator[Tensor]:
        data, batching = self._needed, self._batching(self._method.server_training.epochs)
        if self._method.mixup.at in ("Server", "Both"):
            return fix_mix_losses(self._network, data, data, batching, self._method.mixup, draws)
        return strong_losses(self._network, data, batching, draws)

    def _contrastive(self, draws: Draws) -> Iterator[Tensor]:
        server, data = self._method.server_training, self._needed
        augmentation = draws.torch("augmentation-contrastive")
        rng = draws.numpy("batches-contrastive")
        for _ in range(server.epochs):
            for positions in balanced_batches(data.labels, rng):
                indices, labels = data.batch(positions)
                yield label_contrastive(
                    self._network.anchor(data.views.weak(indices, augmentation)),
                    labels,
                    self._model.num_classes,
                    float(server.temperature),
                    bounded=server.denominator == "Bounded",
                )

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        """Score a model on the test images in eval mode; an empty report where there are none.

        Raises
        ------
        AnchorageError
            The model's outputs are not finite.
        """
        if self._test is None:
            return Report({})
        with calculation(), self._scoring:
            if self._scorer is None:
                self._scorer = build_model(self._model, self._method, self._seed).to(self._device).eval()
            load(self._scorer, self._down, model.buffer())
            return self._report(self._scorer, self._test, round_number)

    def _report(self, network: Network, test: Labelled, round_number: int) -> Report:
        features = test.views.mapped(test.indices, lambda i: network.represent(test.views.plain(i)))
        with torch.no_grad():
            probabilities = network.classifier(features).double().softmax(1).cpu().numpy()
        if not np.isfinite(probabilities).all():
            message = (
                f"the model of round {round_number} gives NaN on the test images: lower learningRate or set clipNorm"
            )
            raise AnchorageError(LOSS_NOT_FINITE, message)
        predictions = probabilities.argmax(1)
        shown = np.sort(Draws(self._seed).numpy("embeddings").permutation(len(predictions))[:EMBEDDED_IMAGES])
        embeddings = np.column_stack([test.labels[shown], predictions[shown], features.cpu().numpy()[shown]])
        return Report(
            classification_metrics(test.labels, probabilities),
            confusion_matrix(test.labels, predictions, self._model.num_classes),
            embeddings.astype(np.float32),
        )

    def _bytes(self) -> ModelBytes:
        buffer = np.empty(self._down.nbytes, np.uint8)
        write(self._network, self._down, lambda nbytes: buffer)
        return ModelBytes.of(self._down, buffer)

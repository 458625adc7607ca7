"""The server's learner: what happens to the community model on the server's labelled images (`anchorage.engine.interfaces.ServerLearner`)."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import ANCHORS_MISSING, LOSS_NOT_FINITE, MODEL_MISMATCH
from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelSpec
from anchorage.learning.anchor_embeddings import AnchorEmbeddings, embed_anchors
from anchorage.learning.batch_norm import recalibrate
from anchorage.learning.contrastive import balanced_batches, label_contrastive
from anchorage.learning.control_variates import controls_of, with_controls
from anchorage.learning.data import ImageSet
from anchorage.learning.data.augmentation import AUGMENTATIONS
from anchorage.learning.decomposition import fold, sigma_losses
from anchorage.learning.device import calculation, placed
from anchorage.learning.draws import Draws
from anchorage.learning.local_training import Batching, Labelled, fix_mix_losses, strong_losses, weak_losses
from anchorage.learning.metrics import classification_metrics, confusion_matrix
from anchorage.learning.models import Network, build_model
from anchorage.learning.moving_average import MovingAverage
from anchorage.learning.probe import linear_probe
from anchorage.learning.projectors import trains_classifier
from anchorage.learning.similarity import build_random_anchor, fingerprint
from anchorage.learning.stepping import build_optimiser, take_steps
from anchorage.learning.two_views import averaged, two_view_losses
from anchorage.learning.views import Views
from anchorage.learning.weights import layout_of, load, load_arrays, upward, write
from anchorage.transport.messages import Report, SideChannel
from anchorage.transport.tensors.layout import PSI, Layout
from anchorage.transport.tensors.model import ModelBytes

EMBEDDED_IMAGES = 500
"""Test images whose embeddings a report carries."""


class TorchServerLearner:
    """Trains and evaluates the community model at the server. `evaluate` may run beside the other methods in another thread.

    Every round's training is a function of the model, the round and `state` alone (its momentum starts anew), so a server that was killed
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
    rounds : int
        The method's last round, at which a cosine schedule ends.
    after : int
        The last round of the stage before.

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
        rounds: int = 0,
        after: int = 0,
    ) -> None:
        self._model, self._method, self._seed, self._device, self._initial = model, method, seed, device, initial
        self._rounds, self._after = rounds, after
        self._network = build_model(model, method, seed)
        self._down = with_controls(layout_of(self._network), self._network, method)
        self._up = upward(self._down, method)
        placed(self._network, device)
        self._anchors = self._labelled(anchors)
        self._test = self._labelled(test)
        self._scorer: Network | None = None
        self._average: MovingAverage | None = None
        self._momentum: dict[Tensor, Tensor] = {}
        self._scoring = Lock()
        self._embedded = AnchorEmbeddings("", {}, 0)
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
        trains = method.server_training.type != "None" or self._recalibrates
        if not self._by_anchors and not trains:
            return
        if self._anchors is None:
            raise AnchorageError(
                ANCHORS_MISSING, f"{method.name} needs labelled anchors at the server: give spec.anchorData"
            )
        counts = np.bincount(self._anchors.labels, minlength=self._model.num_classes)
        if self._by_anchors and not counts.all():
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
            return self._pretrained()

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
            own = {name: tensor.numpy() for name, tensor in fresh.state_dict().items()}
            known = {name: a for name, a in model.arrays().items() if name in own}
            same = {n: a for n, a in known.items() if (a.shape, a.dtype) == (own[n].shape, own[n].dtype)}
            load_arrays(self._network, {**own, **same})
            if self._network.plain_head is not None and "plain_head.weight" not in same:
                self._network.plain_head.load_state_dict(self._network.classifier.state_dict())
            if self._network.psi is not None and not any(name.startswith(PSI) for name in same):
                self._network.psi.restart(self._network)
            return self._pretrained()

    def _pretrained(self) -> ModelBytes:
        server, self._average = self._method.server_training, None
        if server.type == "Anchors" and server.pretrain_epochs:
            sgd = build_optimiser(self._network, server.optimiser, learning_rate=float(server.pretrain_learning_rate))
            losses = self._cross_entropy(self._batching(server.pretrain_epochs), Draws(self._seed))
            take_steps(self._network, sgd, losses, clip_norm=float(server.optimiser.clip_norm))
        self._recalibrate(self._network)
        return self._bytes()

    @property
    def _recalibrates(self) -> bool:
        policy, judged = self._method.batch_norm.policy, self._anchors is not None or self._test is not None
        return policy in ("Recalibrate", "Static") or (policy == "Local" and judged)

    def _recalibrate(self, network: Network) -> None:
        """Count running statistics anew over the anchors, where the method says so, or where silos keep theirs (Local)."""
        if self._recalibrates:
            order = Draws(self._seed).numpy("batch-norm").permutation(len(self._needed.indices))
            recalibrate(network, self._needed.views, self._needed.indices[order])

    def _load_file(self, path: Path) -> None:
        try:
            arrays = load_file(path)
            load_arrays(self._network, arrays)
        except (OSError, SafetensorError, AnchorageError) as error:
            found = error.message if isinstance(error, AnchorageError) else str(error)
            message = f"{path} does not hold the weights of this {self._model.name} ({found}); give spec.model.initial another"
            raise AnchorageError(MODEL_MISMATCH, message) from error
        if self._network.psi is not None and not any(name.startswith(PSI) for name in arrays):
            self._network.psi.restart(self._network)

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
        side = {"random_anchor": self._random_anchor} if self._method.weighting.type == "SemiAnAgg" else {}
        return {**side, **(self._embed(model).side if self._by_anchors else {})}

    @property
    def _by_anchors(self) -> bool:
        return self._method.pseudo_labels.type == "AnchorSimilarity"

    @cached_property
    def _random_anchor(self) -> NDArray[np.uint8]:
        with calculation():
            encoder = build_random_anchor(self._model, self._seed, self._method.weighting.anchor_seed)
            return np.frombuffer(fingerprint(encoder), np.uint8)

    def _embed(self, model: ModelBytes) -> AnchorEmbeddings:
        """Embed the anchors by a model, once (METHODS.md 9.2, number 29)."""
        if self._embedded.model != model.digest:
            with calculation():
                load(self._network, self._down, model.buffer())
                pseudo, count = self._method.pseudo_labels, self._model.num_classes
                self._embedded = embed_anchors(model.digest, self._network, self._needed, pseudo, count)
        return self._embedded

    def train(self, model: ModelBytes, round_number: int) -> tuple[ModelBytes, Mapping[str, float]]:
        """Train on the anchors: epochs of cross entropy or L_fix + L_mix, then label contrastive epochs (METHODS.md 6.8).

        Returns
        -------
        model : ModelBytes
            The same one where the method does not train at the server.
        metrics : mapping of str to float
            ``server_loss``, ``contrastive_loss`` where there is one, and in FedAnchor ``unreachable_classes``: as so many classes no silo can
            accept an image in the next round, because their prototypes are no longer than the threshold (METHODS.md 9.2, number 4).
        """
        server = self._method.server_training
        metrics: Mapping[str, float] = {}
        if server.type != "None" or self._recalibrates:
            with calculation():
                load(self._network, self._down, model.buffer())
                metrics = {} if server.type == "None" else self._train(round_number)
                self._recalibrate(self._network)
                model = self._bytes(model)
        return model, {
            **metrics,
            "unreachable_classes": self._embed(model).unreachable,
        } if self._by_anchors else metrics

    def _train(self, round_number: int) -> Mapping[str, float]:
        server, draws = self._method.server_training, Draws(self._seed, round_number)
        over = round_number - 1 - self._after
        done = over / (self._rounds - self._after) if self._rounds else 0.0
        epochs = over * server.epochs
        sgd = build_optimiser(self._network, server.optimiser, done=done, epochs=epochs, buffers=self._momentum)
        clip = float(server.optimiser.clip_norm)
        loss, _ = take_steps(self._network, sgd, self._classification(draws), clip_norm=clip)
        metrics = {"server_loss": loss}
        if server.contrastive == "Enabled":
            contrast, _ = take_steps(self._network, sgd, self._contrastive(draws), clip_norm=clip)
            metrics["contrastive_loss"] = contrast
        return metrics

    def _classification(self, draws: Draws) -> Iterator[Tensor]:
        data, batching = self._needed, self._batching(self._method.server_training.epochs)
        if self._method.mixup.at in ("Server", "Both"):
            return fix_mix_losses(self._network, data, data, batching, self._method.mixup, draws)
        return self._cross_entropy(batching, draws)

    def _cross_entropy(self, batching: Batching, draws: Draws) -> Iterator[Tensor]:
        if self._network.psi is not None:
            weight = float(self._method.decomposition.supervised_weight)
            return sigma_losses(self._network, self._needed, batching, draws, weight)
        if self._method.server_training.consistency == "Enabled":
            self._average = self._average or averaged(self._network, {})
            return two_view_losses(self._network, self._average, self._needed, batching, draws)
        weak = self._method.server_training.views == "Weak"
        return (weak_losses if weak else strong_losses)(self._network, self._needed, batching, draws)

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return what the next round's training needs beside the model: FedCon's moving average, once there is one."""
        return {} if self._average is None else {name: a.copy() for name, a in self._average.kept().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        with calculation():
            self._average = averaged(self._network, state)

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

        Where nobody trains the classifier (self-supervised methods) a linear probe on the anchors takes its place; without anchors the report
        is empty.

        Raises
        ------
        AnchorageError
            The model's outputs are not finite.
        """
        if self._test is None or (self._probed and self._anchors is None):
            return Report({})
        with calculation(), self._scoring:
            if self._scorer is None:
                self._scorer = placed(build_model(self._model, self._method, self._seed), self._device)
            load(self._scorer, self._down, model.buffer())
            fold(self._scorer)
            if self._method.batch_norm.policy == "Local":  # without rounds nobody else counts
                self._recalibrate(self._scorer)
            return self._report(self._scorer, self._test, round_number)

    def _report(self, network: Network, test: Labelled, round_number: int) -> Report:
        features = test.views.mapped(test.indices, lambda i: network.represent(test.views.plain(i)))
        classifier = self._probe(network, round_number) if self._probed else network.classifier
        if self._probed and not bool(classifier.weight.isfinite().all()):
            return Report({})  # the probe's step is too large for these features, which is no fault of the model
        with torch.no_grad():
            probabilities = classifier(features).double().softmax(1).cpu().numpy()
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

    @property
    def _probed(self) -> bool:
        return not trains_classifier(self._method)

    def _probe(self, network: Network, round_number: int) -> nn.Linear:
        data, views = self._needed, self._needed.views
        features = views.mapped(data.indices, lambda i: network.represent(views.plain(i)))
        labels = views.to_device(data.labels)
        return linear_probe(features, labels, self._model.num_classes, Draws(self._seed, round_number))

    def _bytes(self, model: ModelBytes | None = None) -> ModelBytes:
        buffer = np.empty(self._down.nbytes, np.uint8)
        write(self._network, self._down, lambda nbytes: buffer, controls_of(self._down, model))
        return ModelBytes.of(self._down, buffer)

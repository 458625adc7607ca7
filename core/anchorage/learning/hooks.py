"""What the learners of silos and server ask of a method's pieces. Needs no torch until a hook is called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from anchorage.api.piece import Piece
from anchorage.api.piece_faults import returned_by

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.api.method import ResolvedMethod
    from anchorage.learning.draws import Draws
    from anchorage.learning.local_training import Batching, Contrast, HeadLoss, Labelled, Loss
    from anchorage.learning.method import TrainingMethod
    from anchorage.learning.model_hooks import TaskHooks
    from anchorage.learning.network import Network
    from anchorage.learning.round_part import RoundPart
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.learning.views import Views
    from anchorage.transport.messages import AuxiliaryData
    from anchorage.transport.tensors.layout import Layout
    from anchorage.transport.tensors.model import ModelBytes

    Arrays = Mapping[str, NDArray[Any]]


class LearningHooks(Piece):
    """Hooks that a piece of any slot may have; each does nothing unless overridden."""

    projection_head: ClassVar[bool] = False
    """Whether a projection head stands before the classifier."""

    needs_vectors: ClassVar[bool] = False
    """Whether it takes one vector for each image from the encoder itself, and not by `Network.embed`: then it serves no task of maps."""

    needs_pixels: ClassVar[bool] = False
    """Whether it computes with images other than by `Views.plain`, `weak` and `strong` and a network, such as a mixture of them. Then a frozen
    encoder sees every view anew; else each image is encoded once, and views are embeddings (`anchorage.learning.encoded_views`)."""

    for_volumes: ClassVar[bool] = False
    """Whether it can learn from volumes without masks, where it learns from images without labels."""

    resumes: ClassVar[bool] = False
    """Whether a local loss or regulariser remembers nothing from one batch to the next, so that training may go on in another process."""

    decays_classifier: ClassVar[bool] = True
    """Whether weight decay acts on the classifier at silos."""

    @property
    def classifier_rate(self) -> float | None:
        """Learning rate of the classifier at silos, where it is another one."""
        return None

    def add_heads(self, network: Network) -> None:
        """Add heads to a network whose weights are not drawn yet."""

    def weights_drawn(self, network: Network) -> None:
        """Add what is made of the drawn weights."""

    def before_training(self, network: Network) -> None:
        """Prepare the network that a silo trains, once."""

    def down_layout(self, layout: Layout, network: Network) -> Layout:
        """Return the layout of the global model as it travels down, of what the pieces before made of it."""
        return layout

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Return the layout of an update, of what the pieces before left."""
        return layout

    def held_out_percent(self) -> int:
        """Return the share of a silo's images that is kept for validation, in percent; 0 for none."""
        return 0

    def begin(self, silo_round: SiloRound) -> RoundPart | None:
        """Return this piece's part of a silo's round; the network is as received."""
        return None

    def finishes_model(self, *, judged: bool) -> bool:
        """Return whether `finish_training` changes the model; `judged`: the server has images to evaluate or train on."""
        return False

    def server_auxiliary(self, server_round: ServerRound, model: ModelBytes) -> AuxiliaryData:
        """Return what travels down beside the global model."""
        return {}

    def server_metrics(self, server_round: ServerRound, model: ModelBytes) -> Mapping[str, float]:
        """Return metrics of a round's new global model."""
        return {}

    def adopted(self, network: Network, loaded_names: frozenset[str]) -> None:
        """Fill what a stage's model did not take over from the stage before; `loaded_names` names the tensors that were."""

    def finish_training(self, server_round: ServerRound, network: Network) -> None:
        """Mend a network after the server's training, before it travels."""

    def travels_beside(self, layout: Layout, model: ModelBytes | None) -> Arrays:
        """Return tensors of the global model that are no part of the network."""
        return {}

    def before_scoring(self, server_round: ServerRound, network: Network) -> None:
        """Turn a global model into an ordinary network of the same outputs, to be evaluated."""

    def load_own_layers(self, network: Network, previous_state: Mapping[str, NDArray[Any]]) -> None:
        """Put back the layers that a silo keeps to itself (`RoundPart.kept`), before it scores a model on images of its own."""


class LocalLossHooks(LearningHooks):
    """Loss on a silo's labelled images."""

    per_image: ClassVar[bool] = False
    """Whether it is the mean of a loss per image that depends on nothing else, as DP-SGD needs it."""

    @abstractmethod
    def loss(self, data: Labelled, task: TaskHooks) -> Loss:
        """Return the mean loss of the head's outputs [n, outputs] and labels [n, ...]; it may use the labels of the silo's images."""

    def targets(self, silo_round: SiloRound, labels: NDArray[Any]) -> NDArray[Any]:
        """Return what is learnt of the silo's images, [n, ...], of which `Labelled` has a part, in place of their labels [n, ...]."""
        return labels

    def round_loss(self, silo_round: SiloRound, data: Labelled) -> Loss:
        """Return the loss of one round; override it for a loss with state (see `LearningHooks.begin`)."""
        return self.loss(data, silo_round.task)

    def log_shares(self, silo_round: SiloRound) -> Tensor | None:
        """Return what the logits of pseudo-labelled images are shifted by in the loss, float [C]; None for nothing."""
        return None


class SecondHeadHooks(LearningHooks):
    """A second classifier beside the one that is evaluated."""

    def head_loss(self, loss: Loss, data: Labelled, task: TaskHooks) -> HeadLoss | None:
        """Return the loss of both heads on representations [n, d] with labels [n]; None without a second head."""
        return None

    def pseudo_label_loss(self, network: Network, z: Tensor, logits: Tensor, labels: Tensor) -> Tensor | None:
        """Return what each pseudo-labelled image adds, [n]; None for nothing."""
        return None

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return the work of a silo with unlabelled images; None where the pseudo-labels have their own."""
        return None


class SelfSupervisedHooks(LearningHooks):
    """A loss that takes no label."""

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return the silo's work of a round; None where there is no such loss."""
        return None

    @property
    def leaves_classifier(self) -> bool:
        """Whether no silo trains the classifier."""
        return False


class PseudoLabelHooks(LearningHooks):
    """Labels for the unlabelled images."""

    @property
    def validated(self) -> bool:
        """Whether the server's validation images set its thresholds."""
        return False

    needs_every_class: ClassVar[bool] = False
    """Whether the server must have an anchor of each class."""

    strong_views_too: ClassVar[bool] = False
    """Whether labelled images are learnt in weak and strong views alike (FedAvg-Semi, SemiAnAgg)."""

    labels_images: ClassVar[bool] = True
    """Whether there are pseudo-labels at all."""

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the received model's labels of some images, int64 [b], and whether they are accepted, bool [b]."""
        raise NotImplementedError

    def seen(self, silo_round: SiloRound) -> Views:
        """Return the views of the silo's images that are labelled and learnt."""
        return silo_round.images.views

    def checked_labels(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return what `label` returns for some images.

        Raises
        ------
        AnchorageError
            PIECE_WRONG: it is of another type, shape or dtype, or a label is no class.
        """
        from anchorage.learning.label_checks import check_labels

        result = self.label(silo_round, indices)
        with returned_by(self, "label"):
            return check_labels(result, len(indices), silo_round.run.model.num_outputs)

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return the silo's work of a round; None where the silo only learns its own labels."""
        return None

    def server_losses(self, server_round: ServerRound, batching: Batching) -> Iterator[Tensor] | None:
        """Return the losses of the server's anchors where they are not plain cross entropy."""
        return None


class MixupHooks(LearningHooks):
    """Mixup of images whose labels are fixed for a round."""

    at_silos: ClassVar[bool] = False
    at_server: ClassVar[bool] = False

    def losses(
        self, network: Network, fix: Labelled, mix: Labelled, batching: Batching, draws: Draws
    ) -> Iterator[Tensor]:
        """Yield each step's loss: accepted images, and mixed ones."""
        raise NotImplementedError


class InputMixingHooks(LearningHooks):
    """Mixing of labelled images with images of others."""

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return the silo's work of a round; None where images stay as they are."""
        return None


class RegulariserHooks(LearningHooks):
    """Holds local training near the global model."""

    def contrast(self, silo_round: SiloRound) -> tuple[Contrast, Callable[[], Arrays]] | None:
        """Return what is added for a batch of labelled images and their representations, and what the silo keeps; None for nothing."""
        return None


class ServerTrainer:
    """Trains the global model at the server; this one does not. What it keeps beside the model is in `state`."""

    def pretrain(self, server_round: ServerRound) -> None:
        """Train before round 1."""

    def train(self, server_round: ServerRound) -> Mapping[str, float]:
        """Train after an aggregation and return metrics."""
        return {}

    def state(self) -> Arrays:
        """Return what the next round's training needs beside the model."""
        return {}

    def restore(self, server_round: ServerRound, state: Arrays) -> None:
        """Continue from what `state` returned."""


class ServerTrainingHooks(LearningHooks):
    """What the server trains on its anchors."""

    trains: ClassVar[bool] = False

    needs_anchors: ClassVar[bool] = True
    """Whether it cannot train without anchors."""

    finds_components: ClassVar[bool] = False
    """Whether it finds the principal components that a model's classifier sees (`ModelSpec.principal_components`)."""

    @property
    def validated(self) -> bool:
        """Whether it chooses by the server's validation images."""
        return False

    def silo_work(self, silo_round: SiloRound) -> Work | None:
        """Return the silo's work of a round; None where the server asks nothing else of silos than to train."""
        return None

    def trainer(self, method: TrainingMethod) -> ServerTrainer:
        """Return a trainer of one run."""
        return ServerTrainer()


class ServerLearning:
    """What a server objective does in one run; this one is plain cross entropy. What it keeps beside the model is in `state`."""

    def losses(self, server_round: ServerRound, batching: Batching) -> Iterator[Tensor] | None:
        """Return the losses of the anchors; None for cross entropy of one view."""
        return None

    def further_losses(
        self, server_round: ServerRound, epochs: int, *, before_rounds: bool
    ) -> tuple[str, Iterator[Tensor], int] | None:
        """Return the metric that names further steps, their losses, and how many they are at most; None for no further steps.

        `epochs` are those of cross entropy; `before_rounds` is true of the training before round 1.
        """
        return None

    def state(self) -> Arrays:
        """Return what the next round's training needs beside the model."""
        return {}

    def restore(self, server_round: ServerRound, state: Arrays) -> None:
        """Continue from what `state` returned."""


class ServerObjectiveHooks(LearningHooks):
    """What the server learns of its anchors."""

    def learning(self) -> ServerLearning:
        """Return what it does in one run."""
        return ServerLearning()


class OptimiserHooks(LearningHooks):
    """An optimiser of local or server training."""

    learning_rate: Any
    clip_norm: Any

    follows_gradient: ClassVar[bool] = True
    """Whether a step is the gradient times the learning rate, momentum and decay aside."""

    @property
    @abstractmethod
    def persists(self) -> bool:
        """Whether its memory stays with the silo from round to round."""

    @abstractmethod
    def build(
        self,
        network: Network,
        *,
        learning_rate: float | None = None,
        decay_classifier: bool = True,
        classifier_rate: float | None = None,
        done: float | None = None,
        epochs: int = 0,
        buffers: dict[Tensor, Tensor] | None = None,
    ) -> torch.optim.Optimizer:
        """Return an optimiser of a network's parameters.

        Parameters
        ----------
        network : Network
            What is trained.
        learning_rate : float, optional
            In place of the piece's own.
        decay_classifier : bool
            Whether weight decay acts on the classifier.
        classifier_rate : float, optional
            Learning rate of the classifier, where it is another one.
        done : float, optional
            Share of the rounds that are over, 0 to 1; None before the rounds, where the learning rate is constant.
        epochs : int
            Epochs that are over.
        buffers : dict of Tensor to Tensor, optional
            Memory by parameter that is used again from optimiser to optimiser.
        """

    def memory(self, network: Network, optimiser: torch.optim.Optimizer) -> Arrays:
        """Return what the silo keeps of it."""
        return {}

    def remember(self, network: Network, optimiser: torch.optim.Optimizer, previous_state: Arrays) -> None:
        """Put back what `memory` returned."""


class WeightingHooks(LearningHooks):
    """How much an update counts, as far as silos take part in it."""

    def tally(self, labels: NDArray[Any], activated: NDArray[np.float64]) -> NDArray[Any] | None:
        """Return what a silo tells of a model on its validation images; None where weights do not go by that.

        It is int64 [2], right predictions and all; int64 [C, C], images by true and predicted class; or int64 or float64 [2, C, k], whose sum over
        the first and last axis is at most the number of images (`anchorage.transport.bounds`).

        Parameters
        ----------
        labels : ndarray, shape [n, ...]
            Labels of the images, all known.
        activated : ndarray of float64, shape [n, outputs]
            What the task makes of the model's outputs for them; of maps, what `TaskHooks.compared` returned, [n, ...].
        """
        return None


class BatchNormHooks(LearningHooks):
    """What becomes of batch normalisation."""

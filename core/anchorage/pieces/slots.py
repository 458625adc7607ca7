"""The slots of a method: what a piece of each slot is derived from. docs/writing-a-method.md shows how to write one."""

from typing import ClassVar

from anchorage.api.mistakes import FieldPath
from anchorage.api.task import CLASSIFICATION
from anchorage.engine.hooks import AggregationHooks, EncodingHooks, EngineHooks, ServerStepHooks, WeightingEngineHooks
from anchorage.learning.decoder_hooks import DecoderHooks, IntensityHooks
from anchorage.learning.hooks import (
    BatchNormHooks,
    InputMixingHooks,
    LearningHooks,
    LocalLossHooks,
    MixupHooks,
    OptimiserHooks,
    PseudoLabelHooks,
    RegulariserHooks,
    SecondHeadHooks,
    SelfSupervisedHooks,
    ServerObjectiveHooks,
    ServerTrainingHooks,
    WeightingHooks,
)
from anchorage.learning.model_hooks import AugmentationHooks, NetworkHooks, TaskHooks
from anchorage.learning.reader_hooks import ReaderHooks


class ImageTask(TaskHooks):
    """A prediction task."""


class LocalLoss(LocalLossHooks, EngineHooks):
    """Loss on a silo's labelled images."""

    slot: ClassVar[str] = "local_loss"
    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION


class SecondHead(SecondHeadHooks, EngineHooks):
    """A second classifier beside the one that is evaluated."""

    slot: ClassVar[str] = "second_head"
    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION


class SelfSupervised(SelfSupervisedHooks, EngineHooks):
    """Self-supervised loss, which needs no labels."""

    slot: ClassVar[str] = "self_supervised"


class PseudoLabels(PseudoLabelHooks, EngineHooks):
    """Pseudo-labels of unlabelled images."""

    slot: ClassVar[str] = "pseudo_labels"
    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION


class Mixup(MixupHooks, EngineHooks):
    """Mixup of images whose labels are fixed for a round."""

    slot: ClassVar[str] = "mixup"
    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION


class InputMixing(InputMixingHooks, EngineHooks):
    """Mixing of labelled images with each other or with images of other silos."""

    slot: ClassVar[str] = "input_mixing"
    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION


class Regulariser(RegulariserHooks, EngineHooks):
    """Regulariser that keeps local training near the global model."""

    slot: ClassVar[str] = "regulariser"


class ServerTraining(ServerTrainingHooks, EngineHooks):
    """Training at the server after each aggregation."""

    slot: ClassVar[str] = "server_training"


class ServerObjective(ServerObjectiveHooks, EngineHooks):
    """Loss with which the server trains on its anchors."""

    slot: ClassVar[str] = "server_objective"
    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION

    @property
    def path(self) -> FieldPath:
        """Where this piece stands: inside the server's training."""
        return ("spec", "method", "serverTraining", "anchors", "objective")


class Weighting(WeightingHooks, WeightingEngineHooks):
    """Weight of each silo's update in the average."""

    slot: ClassVar[str] = "weighting"


class Aggregation(AggregationHooks, LearningHooks):
    """How the updates of a round are aggregated."""

    slot: ClassVar[str] = "aggregation"


class BatchNorm(BatchNormHooks, EngineHooks):
    """How batch-normalisation layers are aggregated."""

    slot: ClassVar[str] = "batch_norm"


class ServerStep(ServerStepHooks, LearningHooks):
    """Server optimiser: how the aggregated update changes the global model."""

    slot: ClassVar[str] = "server_step"


class UpdateEncoding(EncodingHooks):
    """Encoding in which silos send their updates."""

    slot: ClassVar[str] = "encoding"


class Optimiser(OptimiserHooks):
    """Optimiser of local or server training."""

    slot: ClassVar[str] = "optimiser"

    @property
    def path(self) -> FieldPath:
        """Where a silo's optimiser stands."""
        return ("spec", "method", "local", "optimiser")


class Network(NetworkHooks):
    """Encoder, which turns images into embeddings."""

    slot: ClassVar[str] = "network"


class ImageAugmentation(AugmentationHooks):
    """Normalisation and augmentation for a kind of image."""

    slot: ClassVar[str] = "augmentation"


class ImageIntensity(IntensityHooks):
    """Which values of an image become black and white."""

    slot: ClassVar[str] = "intensity"

    @property
    def path(self) -> FieldPath:
        """Where it stands: in the model."""
        return ("spec", "model", "intensity")


class Reader(ReaderHooks):
    """Format of images and labels."""

    slot: ClassVar[str] = "reader"


class Decoder(DecoderHooks):
    """Decoder of image files."""

    slot: ClassVar[str] = "decoder"

"""What the learners ask of the pieces beside a method: task, network, augmentation and data format. Needs no torch until a hook is called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from anchorage.api.data import DataFormat
from anchorage.api.model import AugmentationKind, NetworkKind
from anchorage.api.task import Task

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from anchorage.api.data import DataSection
    from anchorage.api.model_card import Assessment
    from anchorage.learning.data.augmentation import Augmentation
    from anchorage.learning.data.classes import SiteClasses
    from anchorage.learning.data.listing import Listing


class NetworkHooks(NetworkKind):
    """An encoder: any torch module that turns images [n, channels, side, side] into embeddings [n, width]."""

    projects: ClassVar[bool] = False
    """Whether a projection head always stands before the classifier."""

    classifier_bias: ClassVar[bool] = True
    """Whether the classifier has a bias."""

    @abstractmethod
    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder; its convolutions and linear maps are drawn anew from the run's seed, what else it has is drawn as it is made."""


class AugmentationHooks(AugmentationKind):
    """Normalisation and views that fit a kind of image."""

    @abstractmethod
    def augmentation(self) -> Augmentation:
        """Return the views."""


@dataclass(frozen=True)
class Scores:
    """How a model did on labelled images."""

    metrics: Mapping[str, float]
    """By name (methods reference, section 1)."""
    predictions: NDArray[np.int64]
    """Predicted class of each image, int64 [n]."""
    confusion: NDArray[np.int64]
    """Images by true and predicted class, int64 [C, C]."""


class TaskHooks(Task):
    """What a model tells of an image: what its outputs mean, and how good they are."""

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of each class from the classifier's outputs [n, C]."""

    @abstractmethod
    def scores(self, labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> Scores:
        """Compare probabilities [n, C], finite, with labels [n]; n >= 1."""

    def assessment(
        self,
        part: Literal["test", "validation"],
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        rng: np.random.Generator,
    ) -> Assessment | None:
        """Compare them in full, as a model card has it; `part` says which images they are, `rng` draws resamples. None: it is not scored so."""
        return None


class ReaderHooks(DataFormat):
    """A format of images and labels."""

    @abstractmethod
    def listing(self, section: DataSection, root: Path, classes: SiteClasses) -> Listing:
        """List the images of a section, bad ones included; nothing is decoded yet."""

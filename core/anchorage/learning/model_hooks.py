"""What the learners ask of the pieces beside a method: task, network, augmentation, data format, decoder. Needs no torch until a hook is called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from anchorage.api.data import DataFormat
from anchorage.api.model import AugmentationKind, NetworkKind
from anchorage.api.piece import Piece
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
    from anchorage.learning.data.decoding import Picture
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


class DecoderHooks(Piece):
    """A kind of image files; hooks may be called from several threads."""

    @abstractmethod
    def version(self) -> str:
        """Return the version of what decodes: pixels of another one may differ, so that what was stored is decoded anew."""

    @abstractmethod
    def suffixes(self) -> Collection[str]:
        """Return how names of its files end, in lower case with a dot: such files are listed as images. Content decides what a file is."""

    @abstractmethod
    def recognises(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes, at most 512, is of this kind."""

    @abstractmethod
    def picture(self, content: bytes, side: int, channels: int) -> Picture:
        """Decode a file.

        Parameters
        ----------
        content : bytes
            The whole file.
        side : int
            Height and width to which the picture will be fitted, pixels: it may be decoded smaller than it is, but not than that.
        channels : int
            What the model takes: 1 for grey, 3 for RGB; a picture may have either.

        Raises
        ------
        RefusedImageError
            The file is damaged, too large, or has what is not read.
        """


class ReaderHooks(DataFormat):
    """A format of images and labels."""

    @abstractmethod
    def listing(self, section: DataSection, root: Path, classes: SiteClasses) -> Listing:
        """List the images of a section, bad ones included; nothing is decoded yet."""

"""What the learners ask of the pieces beside a method: task, network, augmentation. Needs no torch until a hook is called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from anchorage.api.model import AugmentationKind, NetworkKind
from anchorage.api.piece import PIECES, expect
from anchorage.api.task import Tally, Task

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from anchorage.api.model_card import Assessment
    from anchorage.learning.data.augmentation import Augmentation
    from anchorage.learning.data.labels import LabelReader, ReadLabels


class NetworkHooks(NetworkKind):
    """An encoder: any torch module that turns images [n, channels, side, side] into embeddings [n, width]."""

    projects: ClassVar[bool] = False
    """Whether a projection head always stands before the classifier."""

    classifier_bias: ClassVar[bool] = True
    """Whether the classifier has a bias."""

    @abstractmethod
    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder; its convolutions and linear maps are drawn anew from the run's seed, what else it has is drawn as it is made."""

    def volume_encoder(self, channels: int, patch: tuple[int, int, int]) -> nn.Module:
        """Return an encoder of maps for patches of volumes [n, channels, *patch]; asked where `takes_volumes`. As of `encoder`."""
        raise NotImplementedError


class AugmentationHooks(AugmentationKind):
    """Normalisation and views that fit a kind of image."""

    @abstractmethod
    def augmentation(self) -> Augmentation:
        """Return the views."""


@cache
def augmentation_of(name: str) -> Augmentation:
    """Return the views that a document names."""
    return expect(PIECES["augmentation", name](), AugmentationHooks).augmentation()


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of how a model does."""

    name: str
    """Of its file, such as ``confusion``."""
    title: str
    """What it shows, without a model's name."""
    says: str
    """The same in words, for those who do not see it."""
    draw: Callable[[Axes], None]
    """Draws it."""


@dataclass(frozen=True, eq=False, slots=True)
class Scored:
    """Labelled images with what a model makes of them."""

    part: Literal["test", "validation"]
    """Which images."""
    labels: NDArray[Any]
    """Labels, [n, ...], n >= 1, all known."""
    activated: NDArray[np.float64]
    """What `TaskHooks.activated` gave for them, [n, outputs], or of maps what `TaskHooks.compared` did."""
    groups: NDArray[np.int64]
    """Number of each image's patient or lesion, from 0, [n]."""
    own_grids: bool = False
    """Whether maps were compared on the grids of the images' files, not on the network's."""


class MapLoss(Protocol):
    """The loss of a volume, of whose outputs only a part is in memory at a time."""

    def add(self, logits: Tensor, maps: Tensor) -> None:
        """Add a part: logits [1, outputs, ...] and true maps [1, ...]."""
        ...

    def value(self) -> float:
        """Return the loss of all parts together, as `TaskHooks.loss` has it of the whole."""
        ...


class TaskHooks(Task):
    """A prediction task: how labels are read, what is learnt of them, what outputs mean, and how good they are."""

    chooses_thresholds: ClassVar[bool] = False
    """Whether `assessment` needs the validation images, too."""

    draws_examples: ClassVar[bool] = False
    """Whether it shows validation images of the federation with what is true and what is predicted."""

    @abstractmethod
    def label_reader(
        self, class_map: Mapping[str, str], unknown: Literal["Refuse", "Skip", "Unlabelled"] = "Refuse"
    ) -> LabelReader:
        """Return what reads the labels of a site.

        Parameters
        ----------
        class_map : mapping of str to str
            The site's words, as its data section has them, to those of the federation.
        unknown : str
            What becomes of an image whose label cannot be read: all are refused, it alone is left out, or it has no label.
        """

    @abstractmethod
    def stand_ins(self, count: int) -> ReadLabels:
        """Return labels for so many images that are not here, by which `fedctl plan` rehearses training."""

    def partly_annotated(self, unannotated: Sequence[int]) -> TaskHooks:
        """Return the task as it is learnt and scored of masks in which nobody drew these of the outputs; asked where it has a `foreground`."""
        return self

    def head(self, width: int, *, bias: bool) -> nn.Module:
        """Return the classifier: features [n, width] to logits [n, outputs], or where `gives_maps` [n, width, ...] to [n, outputs, ...].

        Its convolutions and linear maps are drawn anew from the run's seed, what else it has is drawn as it is made. A linear map, unless overridden.

        Parameters
        ----------
        width : int
            Of the encoder's vectors, or channels of its maps.
        bias : bool
            Whether the network wants a bias.
        """
        from torch import nn

        return nn.Linear(width, len(self.outputs), bias=bias)

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss over images of the head's outputs [n, outputs] with labels [n, ...], all of them known; a scalar."""

    def map_loss(self) -> MapLoss:
        """Return what sums up the loss of one volume, part by part; asked where `gives_maps`."""
        raise NotImplementedError

    @abstractmethod
    def activated(self, logits: Tensor) -> Tensor:
        """Return what people are shown of the head's outputs [n, outputs], such as probabilities, in their shape and dtype."""

    def maps(self, logits: Tensor) -> Tensor:
        """Return the most probable output at each pixel, uint8 [n, H, W], of logits [n, outputs, H, W]; asked where `gives_maps`."""
        raise NotImplementedError

    def compared(
        self, labels: NDArray[np.uint8], maps: NDArray[np.uint8], spacing: Sequence[float] | None = None
    ) -> NDArray[np.float64]:
        """Return what images are scored by in place of `activated`, [n, ...], of true and predicted maps [n, H, W]; asked where `gives_maps`.

        With a `spacing`, distances of neighbouring pixels along each axis, it has what `assessment` needs, too.
        """
        raise NotImplementedError

    @abstractmethod
    def tally(self, labels: NDArray[Any], activated: NDArray[np.float64]) -> Tally:
        """Return the sums of `tally_arrays` over images with labels [n, ...], all known, and what `activated` gave for them; n may be 0."""

    def evaluate(self, labels: NDArray[Any], activated: NDArray[np.float64]) -> Mapping[str, float]:
        """Return all metrics of n >= 1 images; override it for those that need every image at once, such as areas under curves."""
        return self.scores(self.tally(labels, activated))

    def assessment(
        self, scored: Scored, rng: np.random.Generator, validation: Scored | None = None
    ) -> Assessment | None:
        """Score images in full, as a model card has it; None: they are not scored so.

        Parameters
        ----------
        scored : Scored
            The images.
        rng : Generator
            Draws resamples.
        validation : Scored, optional
            The same model on the validation images, where `chooses_thresholds`; they are `scored` where there are no test images.
        """
        return None

    @abstractmethod
    def true_and_predicted(self, labels: NDArray[Any], activated: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one number for what is true and one for what is predicted of each image, [n, 2], by which pictures colour it."""

    def examples(
        self, pixels: NDArray[np.uint8], labels: NDArray[np.uint8], maps: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        """Return a picture of images [k, channels, H, W] with their true and predicted maps, uint8 [h, w, 3]; asked where `draws_examples`."""
        raise NotImplementedError

    def details(self, tally: Tally) -> Mapping[str, float]:
        """Return further figures of a tally for MLflow, by name, such as the recall of each class."""
        return {}

    def charts(self, assessment: Assessment) -> Iterator[Chart]:
        """Yield the pictures of an assessment, for MLflow and for the report."""
        return iter(())

    def tally_charts(self, tally: Tally) -> Iterator[Chart]:
        """Yield the pictures of a round's tally, for MLflow."""
        return iter(())

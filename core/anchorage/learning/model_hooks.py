"""What the learners ask of the pieces beside a method: task, network, augmentation, data format, decoder. Needs no torch until a hook is called."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, Protocol

from anchorage.api.data import DataFormat
from anchorage.api.model import AugmentationKind, IntensityKind, NetworkKind
from anchorage.api.piece import Piece
from anchorage.api.task import Tally, Task

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from anchorage.api.data import DataSection
    from anchorage.api.model_card import Assessment
    from anchorage.learning.data.augmentation import Augmentation
    from anchorage.learning.data.decoding import Input, Intensity, Picture
    from anchorage.learning.data.headers import Header
    from anchorage.learning.data.labels import LabelReader, ReadLabels
    from anchorage.learning.data.listing import Listing
    from anchorage.learning.data.scans import Scan


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


class IntensityHooks(IntensityKind):
    """Which values of an image become black and white."""

    def shades(self) -> Intensity | None:
        """Return what turns a picture into shades of 0 to 1; None: white is what its bits can hold."""
        from anchorage.learning.data.intensity import intensity_of

        return intensity_of({self.name: self.model_dump()})

    def monai(self) -> Sequence[Mapping[str, Any]] | None:
        """Return MONAI's transforms that show the key ``image`` alike, as a bundle's configuration writes them; None: MONAI has none."""
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

    def header(self, file: BinaryIO) -> Header | None:
        """Return what a file says of itself beside pixels, such as its patient; None: nothing that is used. Reads no pixels.

        Parameters
        ----------
        file : binary file
            At its beginning; it can be read anywhere.

        Raises
        ------
        RefusedImageError
            The file is damaged.
        """
        return None

    @abstractmethod
    def picture(self, content: bytes, wanted: Input, frame: int) -> Picture:
        """Decode a file.

        Parameters
        ----------
        content : bytes
            The whole file.
        wanted : Input
            What the model takes. The picture will be fitted to its side: it may be decoded smaller than it is, but not than that. It may be grey or
            RGB, whatever the model's channels.
        frame : int
            Which of the file's frames, from 0; always 0 where `header` tells of no more.

        Raises
        ------
        RefusedImageError
            The file is damaged, too large, or has what is not read.
        """

    def scan(self, files: Sequence[Path]) -> Scan:
        """Decode a volume: that of one file, or of all slices of a series, in any order.

        Raises
        ------
        RefusedImageError
            The files are damaged, too large, or no volume.
        """
        from anchorage.learning.data.decoding import RefusedImageError

        raise RefusedImageError("Unsupported", "a picture, where a volume is needed")


class ReaderHooks(DataFormat):
    """A format of images and labels."""

    @abstractmethod
    def listing(self, section: DataSection, root: Path, reader: LabelReader) -> Listing:
        """List the images of a section, bad ones included, with the labels that `reader` reads; nothing is decoded yet."""

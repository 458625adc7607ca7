"""Prediction tasks, such as classification: what documents, engine and card know of one. What it learns and predicts: `TaskHooks`."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import StringConstraints

from anchorage.api.base import CLASS_PATTERN
from anchorage.api.mistakes import FieldPath
from anchorage.api.piece import Piece
from anchorage.api.slot import unknown

ClassName = Annotated[str, StringConstraints(strict=True, pattern=CLASS_PATTERN, max_length=128)]
"""A class as people write it: one line of text without blanks around it."""

CLASSIFICATION = frozenset({"classification"})
"""What a piece whose images are of one class each can serve (`anchorage.api.piece.Piece.tasks`)."""

ONE_CLASS_EACH = CLASSIFICATION | {"segmentation"}
"""What a piece can serve that is of one class for each image, or for each pixel of it."""

MULTI_LABEL = frozenset({"multiLabel"})
"""What a piece can serve that is of several findings per image."""

UNKNOWN_PIXEL = 255
"""Of a mask of classes: no loss and no score counts the pixel."""

Tally = Mapping[str, NDArray[Any]]
"""Named sums over images by which a model is scored; those of parts of the images add up to those of all."""


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric that a task scores models by."""

    name: str
    """Such as ``balanced_accuracy``."""
    higher_is_better: bool = True
    """Whether a greater value is a better model."""
    is_share: bool = True
    """Whether it goes from 0 to 1, so that people speak of points; else differences are told in percent."""


@dataclass(frozen=True, slots=True)
class TallyArray:
    """An array of a tally."""

    name: str
    """Key in `anchorage.transport.messages.Evaluation.tally`; a silo's policy and its review name it so."""
    shape: tuple[int, ...]
    """Its shape."""
    dtype: Literal["int64", "float64"]
    """Its dtype; counts are int64."""
    meaning: str
    """What the numbers are, in one phrase, for people."""


class OutputKind(StrEnum):
    """What the numbers are that a task makes of a model's outputs."""

    EXCLUSIVE = "exclusive"
    """A probability for each name; they add up to 1, and one name is true."""
    INDEPENDENT = "independent"
    """A probability for each name by itself."""
    VALUES = "values"
    """A number for each name."""
    MAPS = "maps"
    """A probability for each name at each pixel; they add up to 1 there."""


class Task(Piece):
    """A prediction task: its outputs, how its models are scored, and which of two scores is the better one. Needs no torch."""

    slot: ClassVar[str] = "task"

    metrics: ClassVar[Sequence[MetricName]]
    """Metrics that people look at, the most telling first. By the first that a round has, the best round is chosen; ``loss`` goes last."""

    output_kind: ClassVar[OutputKind]
    """What people are shown of the outputs."""

    one_of_several: ClassVar[bool] = True
    """Whether an image is of one stratum, such as a class, so that pools can be divided by them."""

    mean_over_images: ClassVar[bool] = True
    """Whether the loss of a batch is the mean of those of its images, so that several devices may learn a part each."""

    fit: ClassVar[Literal["Crop", "Pad"]] = "Crop"
    """How images become square where the model's document does not say so."""

    gives_maps: ClassVar[bool] = False
    """Whether it has outputs for each pixel of an image, for which a network must give maps, and not for the image as a whole."""

    @property
    @abstractmethod
    def outputs(self) -> Sequence[str]:
        """Names of the model's outputs, in their order, such as the classes."""

    @property
    def label_names(self) -> Sequence[str]:
        """Names that labels have, such as the classes, to which a section's `classMap` and `classCounts` lead; empty: labels are no names."""
        return ()

    @property
    def foreground(self) -> Sequence[str]:
        """Those of the outputs that a mask can draw on its background, some of which a site may not annotate; empty: labels are no masks."""
        return ()

    def unannotated_mistake(self, unannotated: Sequence[str]) -> str | None:
        """Return what is wrong with the classes that a section's `unannotated` names, and what to do; None: nothing."""
        if not unannotated:
            return None
        if not self.foreground:
            return f"found {len(unannotated)} classes, but labels of the task {self.name} are no masks; leave it out"
        for name in unannotated:
            if name not in self.foreground:
                background = f'"{name}" is the background, which every mask has; name classes of the foreground'
                return background if name in self.outputs else unknown(name, self.foreground)
        if set(unannotated) == set(self.foreground):
            return "found every class of the foreground, so that masks would teach nothing; leave one out, or set labels: None"
        return None

    @abstractmethod
    def tally_arrays(self) -> Sequence[TallyArray]:
        """Return the arrays of a tally, of which at least one is of counts."""

    @abstractmethod
    def scores(self, tally: Tally) -> Mapping[str, float]:
        """Return the metrics of a tally of at least one image; not all of `metrics` need be among them."""

    @abstractmethod
    def images(self, tally: Tally) -> int:
        """Return how many images a tally is of."""

    def is_sound(self, tally: Tally, most: int) -> bool:
        """Return whether a tally that came from elsewhere can be one of 1 to `most` images; override it where more is known of its numbers."""
        declared = {array.name: array for array in self.tally_arrays()}
        if set(tally) != set(declared):
            return False
        fits = (
            array.shape == declared[name].shape and array.dtype == np.dtype(declared[name].dtype)
            for name, array in tally.items()
        )
        return (
            all(fits) and all(np.isfinite(array).all() for array in tally.values()) and 0 < self.images(tally) <= most
        )

    def suppressed(self, tally: Tally, minimum: int) -> Tally:
        """Return a tally as a silo may send it that reports on no fewer images than `minimum`: without what fewer images are behind.

        The tally as a whole is of no fewer images; override it where parts of it are of some of them.
        """
        return tally

    def prediction(self, numbers: Sequence[float], thresholds: Mapping[str, float] | None = None) -> Mapping[str, Any]:
        """Return what people are told of one image, as JSON values, of what the task makes of the outputs: a number for each.

        `thresholds` are those of the outputs that have one (`anchorage.api.inference.Weights.thresholds`).
        """
        kind = "values" if self.output_kind is OutputKind.VALUES else "probabilities"
        return {kind: dict(zip(self.outputs, numbers, strict=True))}

    @property
    def path(self) -> FieldPath:
        """Where the task stands: beside the method."""
        return ("spec", "task")


def pool_tallies(tallies: Sequence[Tally]) -> Tally:
    """Return the tally of all images of several tallies of one task, at least one."""
    return {name: np.sum([tally[name] for tally in tallies], axis=0) for name in tallies[0]}

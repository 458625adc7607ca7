"""Segmentation: every pixel of an image is of exactly one class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, PrivateAttr

from anchorage.api.piece import piece
from anchorage.api.task import UNKNOWN_PIXEL, ClassName, MetricName, OutputKind, Tally, TallyArray
from anchorage.pieces.slots import ImageTask
from anchorage.pieces.task.names import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from anchorage.algorithms.dice import SummedLoss
    from anchorage.api.model_card import Assessment
    from anchorage.learning.data.labels import ReadLabels
    from anchorage.learning.data.masks import MaskReader
    from anchorage.learning.model_hooks import Chart, Scored

_LEAST, _MOST = 2, 250


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    return distinct(names, _LEAST, "class", "classes")


@piece("segmentation")
class Segmentation(ImageTask):
    """Segmentation: every pixel of an image is of exactly one class."""

    metrics: ClassVar[Sequence[MetricName]] = (
        MetricName("dice"),
        MetricName("dice_all"),
        MetricName("pooled_dice"),
    )

    output_kind: ClassVar[OutputKind] = OutputKind.MAPS
    one_of_several: ClassVar[bool] = False
    mean_over_images: ClassVar[bool] = False  # Dice is of a whole batch
    fit: ClassVar[Literal["Crop", "Pad"]] = "Pad"
    gives_maps: ClassVar[bool] = True
    draws_examples: ClassVar[bool] = True

    classes: Annotated[tuple[ClassName, ...], Field(max_length=_MOST), AfterValidator(_distinct)] = Field(
        description="Names of the classes, in the order of the model's outputs. The first is the background, which is learnt but in no mean score. "
        "Value i of a mask is class i, or as a section's maskValues says.",
        json_schema_extra={"minItems": _LEAST},
    )

    _unannotated: tuple[int, ...] = PrivateAttr(())

    @property
    def outputs(self) -> Sequence[str]:
        """The classes: one logit for each, at each pixel."""
        return self.classes

    @property
    def foreground(self) -> Sequence[str]:
        """The classes but for the background."""
        return self.classes[1:]

    def tally_arrays(self) -> Sequence[TallyArray]:
        """Return the sums by which Dice scores of several silos are one."""
        shape = (len(self.foreground),)
        of = "of each foreground class"
        return (
            TallyArray("images", (), "int64", "number of images"),
            TallyArray("cases", shape, "int64", f"images that have the class, {of}"),
            TallyArray("dice", shape, "float64", f"sum of the Dice scores of the images that have the class, {of}"),
            TallyArray("dice_squared", shape, "float64", f"sum of their squares, {of}"),
            TallyArray("empty_right", shape, "int64", f"images without the class where it is not predicted, {of}"),
            TallyArray("empty_wrong", shape, "int64", f"images without the class where it is predicted, {of}"),
            TallyArray("pixels", (*shape, 3), "int64", f"pixels rightly, wrongly and not predicted as the class, {of}"),
        )

    def scores(self, tally: Tally) -> Mapping[str, float]:
        """Return means over the foreground classes of mean Dice, Dice with empty images, and Dice of all pixels together.

        ``dice`` is the mean over the images that have the class; ``dice_all`` has 0 for each image without it where it is predicted, too.
        """
        from anchorage.pieces.task.segmentation_scores import mean_scores

        return mean_scores(tally)

    def images(self, tally: Tally) -> int:
        """Return the count."""
        return int(tally["images"])

    def is_sound(self, tally: Tally, most: int) -> bool:
        """Return whether counts add up, and no Dice is below 0 or above 1. A site counts an unannotated class in none of its images."""
        if not super().is_sound(tally, most):
            return False
        cases, dice, squared = tally["cases"], tally["dice"], tally["dice_squared"]
        counted = cases + tally["empty_right"] + tally["empty_wrong"]
        counts_valid = all((tally[name] >= 0).all() for name in ("cases", "empty_right", "empty_wrong", "pixels"))
        slack = 1e-6 * (1 + cases)
        within = (squared >= 0).all() and (squared <= dice + slack).all() and (dice <= cases + slack).all()
        annotated = counted > 0
        fits = annotated.any() and (counted[annotated] == tally["images"]).all()
        return counts_valid and bool(within) and bool(fits)

    def prediction(self, numbers: Sequence[float], thresholds: Mapping[str, float] | None = None) -> Mapping[str, Any]:
        """Return the share of an image's area that each foreground class covers; `numbers` are those of all classes."""
        return {"area": dict(zip(self.foreground, numbers[1:], strict=True))}

    def label_reader(
        self, class_map: Mapping[str, str], unknown: Literal["Refuse", "Skip", "Unlabelled"] = "Refuse"
    ) -> MaskReader:
        """Read masks, whose values the section names."""
        from anchorage.learning.data.masks import MaskReader

        return MaskReader(self.classes)

    def stand_ins(self, count: int) -> ReadLabels:
        """Return masks of one class each, uint8 [n, 1, 1], which are enlarged to the images."""
        from anchorage.learning.data.labels import ReadLabels

        classes = np.arange(count) % len(self.classes)
        return ReadLabels(classes.astype(np.uint8).reshape(-1, 1, 1), classes, self.classes)

    def partly_annotated(self, unannotated: Sequence[int]) -> Self:
        """Return the task of masks without these classes: their probability is background, and no score counts them."""
        if not unannotated:
            return self
        task = self.model_copy()
        task._unannotated = tuple(unannotated)
        return task

    def head(self, width: int, *, bias: bool) -> nn.Module:
        """Return a linear map of the features of each pixel."""
        from anchorage.learning.heads import PixelClassifier

        return PixelClassifier(width, len(self.classes), bias=bias)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return cross entropy plus 1 less the mean Dice of logits [n, C, H, W] and masks [n, H, W]."""
        from anchorage.algorithms.dice import dice_cross_entropy

        return dice_cross_entropy(logits, labels, UNKNOWN_PIXEL, self._unannotated)

    def map_loss(self) -> SummedLoss:
        """Return the same loss of a volume, part by part."""
        from anchorage.algorithms.dice import SummedLoss

        return SummedLoss(UNKNOWN_PIXEL, self._unannotated)

    def activated(self, logits: Tensor) -> Tensor:
        """Return the softmax of logits [n, C, H, W] over the classes."""
        return logits.softmax(1)

    def maps(self, logits: Tensor) -> Tensor:
        """Return the most probable class of each pixel, uint8 [n, H, W]."""
        import torch

        return logits.argmax(1).to(torch.uint8)

    def compared(
        self, labels: NDArray[np.uint8], maps: NDArray[np.uint8], spacing: Sequence[float] | None = None
    ) -> NDArray[np.float64]:
        """Count the pixels of each class that are rightly, wrongly and not predicted, and measure borders, as `compare` does."""
        from anchorage.pieces.task.segmentation_scores import compare

        return compare(labels, maps, len(self.classes), spacing, self._unannotated)

    def tally(self, labels: NDArray[np.uint8], activated: NDArray[np.float64]) -> Tally:
        """Sum the scores of images of which `compared` returned `activated`."""
        from anchorage.pieces.task.segmentation_scores import Overlaps, tally_overlaps

        return tally_overlaps(Overlaps.of(activated))

    def assessment(self, scored: Scored, rng: np.random.Generator, validation: Scored | None = None) -> Assessment:
        """Score each foreground class, with distances between borders, and intervals by patient."""
        from anchorage.pieces.task.segmentation_scores import assess_masks

        return assess_masks(self.foreground, scored, rng)

    def true_and_predicted(self, labels: NDArray[np.uint8], activated: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the shares of known pixels that are, and that are predicted as, foreground."""
        right, wrong, missed = np.moveaxis(np.nan_to_num(activated[:, :, :3]), 2, 0)
        known = np.maximum((right + missed).sum(1), 1)
        return np.stack([(right + missed)[:, 1:].sum(1) / known, (right + wrong)[:, 1:].sum(1) / known], 1)

    def examples(
        self, pixels: NDArray[np.uint8], labels: NDArray[np.uint8], maps: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        """Return the images with true and predicted classes laid over them."""
        from anchorage.pieces.task.segmentation_charts import example_picture

        return example_picture(pixels, labels, maps)

    def details(self, tally: Tally) -> Mapping[str, float]:
        """Return Dice and cases of each foreground class that anybody annotated, and how many images without it were rightly left empty."""
        from anchorage.pieces.task.segmentation_scores import class_means

        dice = class_means(tally)["dice"]
        details: dict[str, float] = {}
        for place, name in enumerate(self.foreground):
            if not any(tally[count][place] for count in ("cases", "empty_right", "empty_wrong")):
                continue
            if tally["cases"][place]:
                details[f"dice/{name}"] = float(dice[place])
            details[f"cases/{name}"] = float(tally["cases"][place])
            details[f"empty_right/{name}"] = float(tally["empty_right"][place])
            details[f"empty_wrong/{name}"] = float(tally["empty_wrong"][place])
        return details

    def charts(self, assessment: Assessment) -> Iterator[Chart]:
        """Yield the Dice scores of each foreground class."""
        from anchorage.pieces.task.segmentation_charts import assessment_charts

        return assessment_charts(assessment)

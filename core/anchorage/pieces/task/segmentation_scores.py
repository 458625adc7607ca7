"""Scores of masks, per image and foreground class (the background is in none); a class that an image does not have is told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from anchorage.api.model_card import Assessment, Concern, Interval
from anchorage.api.task import UNKNOWN_PIXEL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anchorage.api.task import Tally
    from anchorage.learning.model_hooks import Scored

TOLERANCE = 2.0
"""Times the largest spacing: how far away a border counts as found, in the surface Dice."""
RESAMPLES = 1000
NOTHING_FOUND = 0.05
"""Dice up to which a class is as good as never found."""
_COUNTED = 1 << 22
"""Pixels that are counted at a time."""


class Overlaps(NamedTuple):
    """Pixels of each image and foreground class, int64 [n, C - 1] each; pixels that are not known, and classes that nobody drew, count nowhere."""

    right: NDArray[np.int64]
    """True and predicted (TP)."""
    wrong: NDArray[np.int64]
    """Predicted and not true (FP)."""
    missed: NDArray[np.int64]
    """True and not predicted (FN)."""
    annotated: NDArray[np.bool_]
    """Whether the class would be drawn if the image had it, bool [n, C - 1]."""

    @classmethod
    def of(cls, compared: NDArray[np.float64]) -> Self:
        """Take what `compare` returned."""
        counts = compared[:, 1:, :3]
        right, wrong, missed = np.moveaxis(np.nan_to_num(counts), 2, 0).astype(np.int64)
        return cls(right, wrong, missed, ~np.isnan(counts[:, :, 0]))

    @property
    def has(self) -> NDArray[np.bool_]:
        """Whether the image has the class, bool [n, C - 1]."""
        return (self.right + self.missed) > 0

    @property
    def painted(self) -> NDArray[np.bool_]:
        """Whether the class is predicted somewhere, bool [n, C - 1]."""
        return (self.right + self.wrong) > 0

    @property
    def dice(self) -> NDArray[np.float64]:
        """Return 2 TP / (2 TP + FP + FN), float64 [n, C - 1]; NaN where the image does not have the class."""
        total = 2 * self.right + self.wrong + self.missed
        return np.where(self.has, 2 * self.right / np.maximum(total, 1), np.nan)


def compare(
    masks: NDArray[np.uint8],
    predicted: NDArray[np.uint8],
    classes: int,
    spacing: Sequence[float] | None = None,
    unannotated: Sequence[int] = (),
) -> NDArray[np.float64]:
    """Compare true masks and predicted classes, uint8 [n, H, W] or [n, x, y, z] each.

    Classes `unannotated`, which nobody drew, are background where they are predicted; their own numbers are NaN.

    Returns
    -------
    ndarray of float64, shape [n, C, 3] or [n, C, 5]
        Pixels rightly, wrongly and not predicted as each class, background included. With a `spacing` also the Hausdorff distance (95th percentile)
        in its unit, and the surface Dice, of the foreground: without the class in truth and prediction both are NaN; with it in one of them the
        distance is NaN, and the surface Dice 0 where the image has the class, NaN where it does not.
    """
    predicted = np.where(np.isin(predicted, unannotated), np.uint8(0), predicted) if unannotated else predicted
    compared = np.full((len(masks), classes, 3 if spacing is None else 5), np.nan)
    for row, (mask, predicted_mask) in enumerate(zip(masks, predicted, strict=True)):
        known = mask != UNKNOWN_PIXEL
        table = _pairs(mask[known], predicted_mask[known], classes)
        right = table.diagonal()
        compared[row, :, :3] = np.stack([right, table.sum(0) - right, table.sum(1) - right], 1)
        if spacing is not None:
            for place in range(1, classes):
                compared[row, place, 3:] = _borders(mask == place, (predicted_mask == place) & known, spacing)
    compared[:, list(unannotated)] = np.nan
    return compared


def _pairs(truth: NDArray[np.uint8], predicted: NDArray[np.uint8], classes: int) -> NDArray[np.int64]:
    """Return how many of n pixels have each true (row) and predicted class, int64 [C, C]; a part at a time, for volumes are large."""
    counts = np.zeros(classes**2, np.int64)
    for start in range(0, len(truth), _COUNTED):
        part = slice(start, start + _COUNTED)
        counts += np.bincount(truth[part].astype(np.int64) * classes + predicted[part], minlength=classes**2)
    return counts.reshape(classes, classes)


def _borders(
    truth: NDArray[np.bool_], predicted_mask: NDArray[np.bool_], spacing: Sequence[float]
) -> tuple[float, float]:
    """Return the Hausdorff distance and the surface Dice of one class of one image."""
    from anchorage.algorithms.surfaces import border_distances, hausdorff_95, surface_dice

    if truth.any() and predicted_mask.any():
        both = border_distances(truth, predicted_mask, spacing)
        return hausdorff_95(both), surface_dice(both, TOLERANCE * max(spacing))
    return np.nan, 0.0 if truth.any() else np.nan


def tally_overlaps(overlaps: Overlaps) -> Tally:
    """Return the tally of some images."""
    has, painted = overlaps.has, overlaps.painted
    dice = np.where(has, overlaps.dice, 0.0)
    return {
        "images": np.array(len(has), np.int64),
        "cases": has.sum(0, dtype=np.int64),
        "dice": dice.sum(0),
        "dice_squared": (dice**2).sum(0),
        "empty_right": (overlaps.annotated & ~has & ~painted).sum(0, dtype=np.int64),
        "empty_wrong": (~has & painted).sum(0, dtype=np.int64),
        "pixels": np.stack([overlaps.right.sum(0), overlaps.wrong.sum(0), overlaps.missed.sum(0)], 1),
    }


def class_means(tally: Tally) -> Mapping[str, NDArray[np.float64]]:
    """Return each foreground class's mean Dice, the same with 0 for images in which it is wrongly predicted, and its Dice over all pixels.

    NaN where nothing can be said: no image has the class and, of the latter two, none is predicted to have it.
    """
    right, wrong, missed = np.moveaxis(tally["pixels"], 1, 0)
    parts: Mapping[str, tuple[NDArray[Any], NDArray[Any]]] = {
        "dice": (tally["dice"], tally["cases"]),
        "dice_all": (tally["dice"], tally["cases"] + tally["empty_wrong"]),
        "pooled_dice": (2 * right, 2 * right + wrong + missed),
    }
    return {name: np.where(total > 0, part / np.maximum(total, 1), np.nan) for name, (part, total) in parts.items()}


def mean_scores(tally: Tally) -> Mapping[str, float]:
    """Return the means over the foreground classes of what `class_means` returns."""
    known_means = {name: values[~np.isnan(values)] for name, values in class_means(tally).items()}
    return {name: float(values.mean()) for name, values in known_means.items() if len(values)}


def assess_masks(foreground: Sequence[str], scored: Scored, rng: np.random.Generator) -> Assessment:
    """Score a model in full: Dice with intervals over patients, and distances between borders.

    Parameters
    ----------
    foreground : sequence of str
        Names of the classes but for the background.
    scored : Scored
        Images with what `compare` returned with a spacing.
    rng : Generator
        Draws the resamples: patients with replacement, each with all of its images.
    """
    overlaps = Overlaps.of(scored.activated)
    tally = tally_overlaps(overlaps)
    metrics = dict(mean_scores(tally))
    distances, surface = np.moveaxis(scored.activated[:, 1:, 3:], 2, 0)
    apart = (overlaps.has != overlaps.painted).sum(0)
    computed = ~np.isnan(distances)
    for name, values in (("hausdorff_95", distances), ("surface_dice", surface)):
        if (mean := _mean_of_classes(values)) is not None:
            metrics[name] = mean
    intervals = dict(_intervals(foreground, overlaps.dice, scored.groups, rng))
    for place, name in enumerate(foreground):
        for title, values in (("hausdorff_95", distances), ("surface_dice", surface)):
            if computed[:, place].any() or (title == "surface_dice" and (~np.isnan(values[:, place])).any()):
                metrics[f"{title}/{name}"] = float(np.nanmean(values[:, place]))
    cases = [tally["cases"], tally["empty_right"], tally["empty_wrong"], apart]
    return Assessment(
        part=scored.part,
        images=len(scored.activated),
        metrics=metrics,
        intervals=intervals,
        resamples=RESAMPLES if intervals else 0,
        grid="File" if scored.own_grids else "Network",
        counts={
            f"cases/{name}": (tuple(int(count[place]) for count in cases),)
            for place, name in enumerate(foreground)
            if overlaps.annotated[:, place].any()
        },
        concerns=tuple(_concerns(foreground, tally)),
    )


def _mean_of_classes(values: NDArray[np.float64]) -> float | None:
    """Return the mean over classes of the means over images; None where there is no number."""
    means = [column[~np.isnan(column)].mean() for column in values.T if (~np.isnan(column)).any()]
    return float(np.mean(means)) if means else None


def _intervals(
    foreground: Sequence[str], dice: NDArray[np.float64], groups: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[tuple[str, Interval]]:
    """Yield the mean Dice of each foreground class, and of all of them, with 95 % bootstrap intervals over patients (`groups`, [n], from 0)."""
    present: NDArray[np.bool_] = np.any(~np.isnan(dice), axis=0)
    if not present.any():
        return
    counted = ~np.isnan(dice)
    filled = np.where(counted, dice, 0.0)
    patients = int(groups.max()) + 1
    of_patients = np.zeros((2, patients, dice.shape[1]))
    np.add.at(of_patients[0], groups, filled)
    np.add.at(of_patients[1], groups, counted)
    drawn = rng.integers(0, patients, (RESAMPLES, patients))
    sums, counts = (np.stack([each[rows].sum(0) for rows in drawn]) for each in of_patients)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    class_dice = filled.sum(0) / np.maximum(counted.sum(0), 1)
    for place, name in enumerate(foreground):
        if present[place]:
            yield f"dice/{name}", _interval(float(class_dice[place]), means[:, place])
    known = ~np.isnan(means)
    overall = np.where(known, means, 0.0).sum(1)[known.any(1)] / known.sum(1)[known.any(1)]
    yield "dice", _interval(float(class_dice[present].mean()), overall)


def _interval(value: float, resampled: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(resampled[~np.isnan(resampled)], [2.5, 97.5])
    return Interval(value=value, low=float(low), high=float(high))


def _concerns(foreground: Sequence[str], tally: Tally) -> Iterator[Concern]:
    """Yield what is wrong: a class that is found nowhere, and one that is painted into images that do not have it."""
    dice = class_means(tally)["dice"]
    for place, name in enumerate(foreground):
        if tally["cases"][place] and dice[place] <= NOTHING_FOUND:
            predicate = f'hardly finds the class "{name}": mean Dice {dice[place]:.2f} over the images that have it'
            yield Concern(kind="NothingFound", predicate=predicate)
        empty = tally["empty_right"][place] + tally["empty_wrong"][place]
        if empty and 2 * tally["empty_wrong"][place] > empty:
            predicate = (
                f'predicts the class "{name}" in {tally["empty_wrong"][place]} of {empty} images that do not have it'
            )
            yield Concern(kind="PaintsEmptyImages", predicate=predicate)

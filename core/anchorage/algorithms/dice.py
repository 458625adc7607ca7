"""Overlap of predicted and true masks as a loss; the first class is the background (torch)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

SMOOTHING = 1e-5
"""Added to both sides of a Dice's fraction, so that a class that is nowhere costs nothing."""


def dice_cross_entropy(logits: Tensor, masks: Tensor, ignored: int, unannotated: Sequence[int] = ()) -> Tensor:
    """Return cross entropy over the pixels that are known, plus 1 less the mean soft Dice of the foreground classes.

    The sums of a class's Dice run over the whole batch (nnU-Net's batch Dice), so that a class which is absent from one image does not force its loss
    to 1. Equal to MONAI's ``DiceCELoss(include_background=False, to_onehot_y=True, softmax=True, batch=True, smooth_nr=1e-5, smooth_dr=1e-5)``
    where every pixel is known. Without a known pixel it is 0, with a gradient of 0.

    Parameters
    ----------
    logits : Tensor of float, shape [n, C, H, W]
        Raw outputs, at least two classes.
    masks : Tensor of uint8, shape [n, H, W]
        True classes.
    ignored : int
        Value of pixels that count in neither part.
    unannotated : sequence of int
        Foreground classes that nobody drew in these masks, of which there is another one: the loss is that of `into_background`.
    """
    if unannotated:
        logits, masks = into_background(logits, masks, ignored, unannotated)
    entropy, dice = _entropy_and_dice(logits, masks, ignored)
    return entropy + 1 - dice


def into_background(logits: Tensor, masks: Tensor, ignored: int, unannotated: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Merge classes that nobody drew into the background, which may be any of them (marginal loss, Shi et al. 2021, arXiv:2007.03868).

    The merged background has the sum of their probabilities, p'_0 = p_0 + sum of p_c, and every other class keeps its own.

    Parameters
    ----------
    logits, masks, ignored
        As of `dice_cross_entropy`.
    unannotated : sequence of int
        The classes, none of them 0.

    Returns
    -------
    logits : Tensor of float, shape [n, C - len(unannotated), H, W]
        Logarithms of those probabilities, but for what is added to all of a pixel; the classes that are left keep their order.
    masks : Tensor of uint8, shape [n, H, W]
        Their places there; `ignored` stays as it is.
    """
    merged = sorted({0, *unannotated})
    remaining_classes = [place for place in range(1, logits.shape[1]) if place not in merged]
    places = torch.zeros(256, dtype=torch.uint8)
    places[remaining_classes] = torch.arange(1, len(remaining_classes) + 1, dtype=torch.uint8)
    places[ignored] = ignored
    background = logits[:, merged].logsumexp(1, keepdim=True)
    return torch.cat([background, logits[:, remaining_classes]], 1), places.to(masks.device)[masks.long()]


def confident_loss(logits: Tensor, masks: Tensor, ignored: int, targets: Tensor | None = None) -> Tensor:
    """Return `dice_cross_entropy` of masks of pseudo-labels; the Dice counts only where any known pixel is foreground.

    Parameters as there; `targets`, float [n, C, H, W], are what the known pixels teach in place of their classes, such as sharpened probabilities.
    """
    entropy, dice = _entropy_and_dice(logits, masks, ignored, targets)
    foreground = ((masks != ignored) & (masks > 0)).any().to(logits.dtype)
    return entropy + foreground * (1 - dice)


def move_maps(maps: Tensor, places: Tensor) -> Tensor:
    """Return maps [n, C, H, W] as the pixels of a view of their images have them; 0 where a pixel comes from nowhere.

    Parameters
    ----------
    maps : Tensor, shape [n, C, H, W]
        Numbers of each pixel of the images.
    places : Tensor of int64, shape [n, h, w]
        As of `anchorage.learning.views.Views.with_places`.
    """
    count, channels, height, width = *maps.shape[:2], *places.shape[1:]
    rows = places.clamp(min=0).flatten(1).unsqueeze(1).expand(-1, channels, -1)
    moved_maps = maps.flatten(2).gather(2, rows).view(count, channels, height, width)
    return moved_maps * (places >= 0).unsqueeze(1)


class SummedLoss:
    """`dice_cross_entropy` of one volume, of whose logits a part is in memory at a time.

    Parameters
    ----------
    ignored : int
        As there.
    unannotated : sequence of int
        As there.
    """

    def __init__(self, ignored: int, unannotated: Sequence[int] = ()) -> None:
        self._ignored, self._unannotated = ignored, tuple(unannotated)
        self._sums: tuple[Tensor, ...] = ()

    def add(self, logits: Tensor, masks: Tensor) -> None:
        """Add a part. Parameters as of `dice_cross_entropy`."""
        if self._unannotated:
            logits, masks = into_background(logits, masks, self._ignored, self._unannotated)
        sums = _sums(logits, masks, self._ignored)
        self._sums = tuple(a + b for a, b in zip(self._sums, sums, strict=True)) if self._sums else sums

    def value(self) -> float:
        """Return the loss of all parts together."""
        entropy, known, overlap, both = self._sums
        return float(entropy / known.clamp(min=1) + 1 - _dice(overlap, both))


def _entropy_and_dice(
    logits: Tensor, masks: Tensor, ignored: int, targets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return mean cross entropy over the known pixels, and the mean soft Dice of the foreground classes."""
    entropy, known, overlap, both = _sums(logits, masks, ignored, targets)
    return entropy / known.clamp(min=1), _dice(overlap, both)


def _sums(
    logits: Tensor, masks: Tensor, ignored: int, targets: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the sums of cross entropy and of known pixels, and of each foreground class those of a Dice's fraction, [C - 1] each."""
    classes = logits.shape[1]
    known = (masks != ignored).unsqueeze(1).to(logits.dtype)
    truth = functional.one_hot(masks.long().masked_fill(masks == ignored, 0), classes).movedim(-1, 1).to(logits.dtype)
    truth = (truth if targets is None else targets.to(logits.dtype)) * known
    entropy = -(truth * logits.log_softmax(1)).sum()
    predicted = logits.softmax(1) * known
    axes = (0, *range(2, logits.ndim))
    overlap = (predicted * truth).sum(axes)[1:]
    both = (predicted.sum(axes) + truth.sum(axes))[1:]
    return entropy, known.sum(), overlap, both


def _dice(overlap: Tensor, both: Tensor) -> Tensor:
    return torch.mean((2 * overlap + SMOOTHING) / (both + SMOOTHING))

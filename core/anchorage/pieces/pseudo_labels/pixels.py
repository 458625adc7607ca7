"""FixMatch pixel by pixel, for segmentations: confident pixels of an image's predicted mask are learnt on a strong view of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from anchorage.api.task import UNKNOWN_PIXEL

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.learning.draws import Draws
    from anchorage.learning.local_training import Batching
    from anchorage.learning.silo_round import SiloRound, Work

LEAST_SHARE = 0.05
"""Share of an image's pixels that must be confident; images with fewer are left out."""


def pixel_work(silo_round: SiloRound, threshold: float) -> Work | None:
    """Return the consistency losses beside those of labelled images; None where every image has a mask."""
    from anchorage.learning.silo_round import Work

    images, batching = silo_round.images, silo_round.batching()
    if not len(images.unlabelled):
        return None
    pixels = PixelLosses(silo_round, threshold)
    losses, steps = silo_round.beside_labelled(pixels.losses(batching, silo_round.draws), batching)
    return Work(losses, steps, silo_round.counts(), pixels.images, metrics=pixels.metrics)


class PixelLosses:
    """Yields the losses of a silo's images without a mask, and counts what was confident in the last epoch.

    The model in training labels the image as it is, in eval mode; the mask then moves with the strong view, so that both have the same
    geometry. A model that says background everywhere is confident everywhere: foreground and background are counted apart, and where no pixel
    of foreground is confident, the loss is cross entropy alone, without the Dice that would push foreground down
    (`anchorage.algorithms.dice.confident_loss`).

    Parameters
    ----------
    silo_round : SiloRound
        The round.
    threshold : float
        Least probability of a confident pixel.
    """

    def __init__(self, silo_round: SiloRound, threshold: float) -> None:
        self._network, self._views = silo_round.network, silo_round.images.views
        self._indices: NDArray[np.int64] = silo_round.images.unlabelled
        self._threshold = threshold
        self._counts: list[Tensor] = []

    def losses(self, batching: Batching, draws: Draws) -> Iterator[Tensor]:
        """Yield the loss of each batch."""
        from anchorage.algorithms.dice import confident_loss

        stream, augmentation = draws.numpy("batches-unlabelled"), draws.torch("augmentation-unlabelled")
        in_pass = batching.in_pass(len(self._indices))
        for step, positions in enumerate(batching.positions(len(self._indices), stream)):
            if step % in_pass == 0:
                self._counts = []
            indices = self._views.to_device(self._indices[positions])
            guessed = self.masks(indices)
            strong, moved = self._views.with_labels("strong", indices, guessed, augmentation)
            yield confident_loss(self._network(strong), moved, UNKNOWN_PIXEL)

    def masks(self, indices: Tensor) -> Tensor:
        """Return the confident pixels' classes of some images, uint8 [b, H, W], and count them; what is not confident is not known."""
        import torch

        self._network.eval()
        try:
            with torch.no_grad():
                confidence, labels = self._network(self._views.plain(indices)).softmax(1).max(1)
        finally:
            self._network.train()
        confident = confidence >= self._threshold
        confident &= (confident.float().mean((1, 2)) >= LEAST_SHARE)[:, None, None]
        foreground = confident & (labels > 0)
        used = confident.flatten(1).any(1).sum()
        every = used.new_tensor(confident.numel())
        self._counts.append(torch.stack([foreground.sum(), confident.sum(), every, used]))
        masks: Tensor = labels.to(torch.uint8).masked_fill(~confident, UNKNOWN_PIXEL)
        return masks

    def images(self) -> int:
        """Return how many images had enough confident pixels."""
        return int(sum(int(counts[3]) for counts in self._counts))

    def metrics(self) -> Mapping[str, float]:
        """Return the shares of all pixels that were confident foreground, and confident background."""
        if not self._counts:
            return {}
        foreground, confident, pixels, _ = (float(sum(int(counts[n]) for counts in self._counts)) for n in range(4))
        return {"accepted_foreground": foreground / pixels, "accepted_background": (confident - foreground) / pixels}

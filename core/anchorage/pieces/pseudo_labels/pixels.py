"""Pseudo-labels pixel by pixel, for segmentations: confident pixels of an image's predicted mask are learnt on a strong view of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from anchorage.api.task import UNKNOWN_PIXEL

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.learning.draws import Draws
    from anchorage.learning.local_training import Batching
    from anchorage.learning.silo_round import SiloRound, Work

LEAST_SHARE = 0.05
"""Share of an image's pixels that must be confident; images with fewer are left out."""
_PIXELS = 1 << 20
"""Of a batch that the received model labels."""


def pixel_work(silo_round: SiloRound, threshold: float, temperature: float | None = None) -> Work | None:
    """Return the losses of labels by the model in training beside those of labelled images; None where every image has a mask.

    Parameters as of `PixelLosses`.
    """
    if not len(silo_round.images.unlabelled):
        return None
    return _beside_labelled(silo_round, PixelLosses(silo_round, threshold, temperature))


def received_pixel_work(silo_round: SiloRound, threshold: float) -> Work:
    """Return the losses of labels by the received model beside those of labelled images. Parameters as of `PixelLosses`."""
    from anchorage.learning.volume_views import VolumeViews

    by_patches = isinstance(silo_round.images.views, VolumeViews)
    return _beside_labelled(silo_round, (ReceivedPatches if by_patches else ReceivedPixels)(silo_round, threshold))


def _beside_labelled(silo_round: SiloRound, pixels: PixelLosses) -> Work:
    from anchorage.learning.silo_round import Work

    batching = silo_round.batching()
    losses = pixels.losses(batching, silo_round.draws)
    together, steps = silo_round.beside_labelled(losses, batching, len(pixels.indices))
    return Work(together, steps, silo_round.counts(), pixels.images, metrics=pixels.metrics)


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
    temperature : float, optional
        Of soft targets ``softmax(logits / temperature)`` (UDA); the most probable classes.
    """

    def __init__(self, silo_round: SiloRound, threshold: float, temperature: float | None = None) -> None:
        self._network, self._views = silo_round.network, silo_round.images.views
        self.indices: NDArray[np.int64] = silo_round.images.unlabelled
        """Images that are learnt."""
        self._threshold, self._temperature = threshold, temperature
        self._counts: list[Tensor] = []

    def losses(self, batching: Batching, draws: Draws) -> Iterator[Tensor]:
        """Yield the loss of each batch."""
        stream, augmentation = draws.numpy("batches-unlabelled"), draws.torch("augmentation-unlabelled")
        in_pass = batching.in_pass(len(self.indices))
        for step, positions in enumerate(batching.positions(len(self.indices), stream)):
            if step % in_pass == 0:
                self._begin()
            yield self._loss(positions, augmentation)

    def _begin(self) -> None:
        """Begin another pass, whose pixels are counted."""
        self._counts = []

    def _loss(self, positions: NDArray[np.int64], augmentation: torch.Generator) -> Tensor:
        from anchorage.algorithms.dice import confident_loss, move_maps
        from anchorage.learning.volume_views import VolumeViews

        indices = self._views.to_device(self.indices[positions])
        if isinstance(self._views, VolumeViews):  # whose strong views leave every voxel where it is
            plain, changed = self._views.pair("strong", indices, augmentation)
            logits = self._logits(plain)
            soft = None if self._temperature is None else (logits / self._temperature).softmax(1)
            return confident_loss(self._network(changed), self.masks(logits), UNKNOWN_PIXEL, soft)
        logits = self._logits(self._views.plain(indices))
        masks = self.masks(logits)
        if self._temperature is None:
            strong, known = self._views.with_labels("strong", indices, masks, augmentation)
            return confident_loss(self._network(strong), known, UNKNOWN_PIXEL)
        strong, places = self._views.with_places("strong", indices, augmentation)
        known = move_maps(masks.unsqueeze(1), places).squeeze(1).masked_fill(places < 0, UNKNOWN_PIXEL)
        targets = move_maps((logits / self._temperature).softmax(1), places)
        return confident_loss(self._network(strong), known, UNKNOWN_PIXEL, targets)

    def _logits(self, plain: Tensor) -> Tensor:
        """Return what the model that labels says of images as they are, in eval mode, float [b, C, H, W]."""
        import torch

        self._network.eval()
        try:
            with torch.no_grad():
                logits: Tensor = self._network(plain)
                return logits
        finally:
            self._network.train()

    def masks(self, logits: Tensor) -> Tensor:
        """Return the confident pixels' classes, uint8 [b, H, W], of logits [b, C, H, W], and count them; what is not confident is not known.

        Of patches of volumes they are [b * `Views.per_image`, ...]; a volume is used where one of its patches is.
        """
        import torch

        confidence, labels = logits.softmax(1).max(1)
        confident = confidence >= self._threshold
        enough = confident.float().flatten(1).mean(1) >= LEAST_SHARE
        confident &= enough.view(-1, *[1] * (confident.ndim - 1))
        foreground = confident & (labels > 0)
        used = confident.flatten(1).any(1).view(-1, self._views.per_image).any(1).sum()
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


class ReceivedPixels(PixelLosses):
    """The same with masks by the received model, made once, uint8 [n, H, W], of images with enough confident pixels; the others are left out."""

    def __init__(self, silo_round: SiloRound, threshold: float) -> None:
        import torch

        super().__init__(silo_round, threshold)
        size = max(1, _PIXELS // silo_round.run.model.image_size**2)
        mask_batches: list[Tensor] = []
        for start in range(0, len(self.indices), size):
            some = self._views.to_device(self.indices[start : start + size])
            with torch.no_grad():
                mask_batches.append(self.masks(self._network(self._views.plain(some))))
        masks = torch.cat(mask_batches) if mask_batches else torch.empty(0, 1, 1, dtype=torch.uint8)
        has_labels = (masks != UNKNOWN_PIXEL).flatten(1).any(1)
        self._masks = masks[has_labels]
        self.indices = self.indices[has_labels.cpu().numpy()]

    def _begin(self) -> None:
        """Keep the counts: masks are those of the round."""

    def _loss(self, positions: NDArray[np.int64], augmentation: torch.Generator) -> Tensor:
        from anchorage.algorithms.dice import confident_loss

        indices, rows = (self._views.to_device(each) for each in (self.indices[positions], positions))
        strong, known = self._views.with_labels("strong", indices, self._masks[rows], augmentation)
        return confident_loss(self._network(strong), known, UNKNOWN_PIXEL)


class ReceivedPatches(PixelLosses):
    """The same of volumes: a copy of the received model, which stays as it came, labels each patch when it is drawn."""

    def __init__(self, silo_round: SiloRound, threshold: float) -> None:
        super().__init__(silo_round, threshold)
        self._received = silo_round.copy_received()

    def _logits(self, plain: Tensor) -> Tensor:
        import torch

        with torch.no_grad():
            logits: Tensor = self._received(plain)
        return logits

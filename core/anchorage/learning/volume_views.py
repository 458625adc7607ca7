"""Patches of volumes as a network takes them."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from anchorage.api.model import VOLUME_DEVIATION, VOLUME_MEAN, VolumeSpec
from anchorage.learning.data.augmentation import Augmentation, levels
from anchorage.learning.data.geometry import integers, uniform
from anchorage.learning.data.volumes import StoredVolume, StoredVolumes
from anchorage.learning.sliding_window import Network, sliding_logits
from anchorage.learning.views import Kind, Views

Place = tuple[int, int, int]

GAIN, LIFT = {"learnt": 0.1, "weak": 0.1, "strong": 0.3}, {"learnt": 0.05, "weak": 0.05, "strong": 0.15}
"""By how much contrast and brightness of a view change at most."""


VOLUME = Augmentation((VOLUME_MEAN,), (VOLUME_DEVIATION,))
"""Of which only the normalisation serves volumes."""


class VolumeViews(Views):
    """Batches of patches of volumes: middle ones as they are, random ones with changes of contrast and brightness.

    Parameters
    ----------
    volumes : StoredVolumes
        All volumes; of them patches are read when they are asked for.
    volume : VolumeSpec
        How patches are drawn.
    device : torch.device
        Where the network is.
    """

    def __init__(self, volumes: StoredVolumes, volume: VolumeSpec, device: torch.device) -> None:
        self._volumes, self._volume = volumes, volume
        super().__init__(volumes, VOLUME, device)

    @property
    def per_image(self) -> int:
        """How many patches `with_labels` makes of a volume."""
        return self._volume.patches_per_case

    @property
    def ahead(self) -> int:
        """How many volumes to view at once: patches are large, and views of several batches are no cheaper."""
        return 1

    def with_labels(
        self, kind: Kind, indices: Tensor, labels: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return patches of volumes, float32 [b * `per_image`, channels, *patch], and their masks, uint8 [b * `per_image`, *patch].

        `labels` only stand for the masks, which are read with the values.
        """
        values, masks = self._patches(indices, generator)
        return self._augmentation.normalise(self._change(values, kind, generator).to(self.device)), masks.to(
            self.device
        )

    def _patches(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random patches of volumes, values in 0 … 1, and their masks, mirrored where that is asked for."""
        drawn = [
            volume.patch(self._draw(volume, generator), self._volume.voxels)
            for volume in map(self._volumes.volume, indices.tolist())
            for _ in range(self.per_image)
        ]
        values = levels(torch.from_numpy(np.stack([patch for patch, _ in drawn])))
        masks = torch.from_numpy(np.stack([mask for _, mask in drawn]))
        return _mirror(values, masks, generator) if self._volume.flips == "Random" else (values, masks)

    def _change(self, values: Tensor, kind: Kind, generator: torch.Generator) -> Tensor:
        """Return values in 0 … 1 with another contrast and brightness for each patch."""
        shape = (len(values), 1, 1, 1, 1)
        gain = uniform(1 - GAIN[kind], 1 + GAIN[kind], shape, generator)
        lift = uniform(-LIFT[kind], LIFT[kind], shape, generator)
        return (values - VOLUME_MEAN) * gain + VOLUME_MEAN + lift

    def pair(self, kind: Kind, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random patches as they are, and the same with changes of contrast and brightness, both as of `with_labels`."""
        values, _ = self._patches(indices, generator)
        changed = self._change(values, kind, generator)
        return self._augmentation.normalise(values.to(self.device)), self._augmentation.normalise(
            changed.to(self.device)
        )

    def case(self, index: int) -> StoredVolume:
        """Return a volume."""
        return self._volumes.volume(index)

    def logits(self, network: Network, index: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield which planes of a volume, along the first axis, and a network's outputs for them, float32 [1, C, planes, y, z]."""
        volume, patch, place = self.case(index), self._volume.voxels, 0

        def patch_at(start: Place) -> Tensor:
            values = torch.from_numpy(volume.patch(start, patch)[0]).to(self.device)
            return self._augmentation.normalise(levels(values)[None])[0]

        for planes in sliding_logits(network, patch_at, volume.shape[1:], patch, float(self._volume.overlap)):
            yield slice(place, place + planes.shape[1]), planes[None]
            place += planes.shape[1]

    @property
    def volume(self) -> VolumeSpec:
        """How files become volumes."""
        return self._volume

    def _draw(self, volume: StoredVolume, generator: torch.Generator) -> Place:
        """Draw where a patch begins: anywhere, or around a voxel of a foreground class."""
        patch, sides = self._volume.voxels, volume.shape[1:]
        on_foreground = float(uniform(0, 1, (1,), generator)) < float(self._volume.foreground_share)
        anywhere = [
            int(integers(max(1, side - patch_side + 1), (1,), generator))
            for side, patch_side in zip(sides, patch, strict=True)
        ]
        if on_foreground and (classes := volume.foreground):
            places = volume.places(classes[int(integers(len(classes), (1,), generator))])
            centre = places[int(integers(len(places), (1,), generator))]
            anywhere = [int(at) - patch_side // 2 for at, patch_side in zip(centre, patch, strict=True)]
        return _within(anywhere, sides, patch)


def _within(start: list[int], sides: tuple[int, ...], patch: Place) -> Place:
    """Return a start from which a patch lies inside of a volume, or has the volume in its middle where it is smaller."""
    first, second, third = (
        min(max(0, at), side - patch_side) if side > patch_side else -((patch_side - side) // 2)
        for at, side, patch_side in zip(start, sides, patch, strict=True)
    )
    return first, second, third


def _middle(volume: StoredVolume, patch: Place) -> Place:
    sides = volume.shape[1:]
    return _within([(side - patch_side) // 2 for side, patch_side in zip(sides, patch, strict=True)], sides, patch)


def _mirror(values: Tensor, masks: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mirror patches [n, channels, x, y, z] and masks [n, x, y, z] along each axis, half of them."""
    for axis in (1, 2, 3):
        chosen = integers(2, (len(values),), generator).bool()
        values = torch.where(chosen.view(-1, 1, 1, 1, 1), values.flip(axis + 1), values)
        masks = torch.where(chosen.view(-1, 1, 1, 1), masks.flip(axis), masks)
    return values, masks

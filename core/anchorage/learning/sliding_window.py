"""Outputs of a network for a whole volume, of overlapping patches whose middle counts most (Isensee et al. 2021, nnU-Net)."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

PATCHES = 4
"""Patches of one forward pass."""
_SIGMA = 1 / 8
"""Of the weights, as a share of a patch's side."""
_LEAST = 1e-3
"""Least weight of a voxel, so that none is lost to rounding."""

Network = Callable[[Tensor], Tensor]
Patch = Callable[[tuple[int, int, int]], Tensor]


def sliding_logits(
    network: Network, patch_at: Patch, sides: Sequence[int], patch: Sequence[int], overlap: float
) -> Iterator[Tensor]:
    """Yield the outputs of a volume, plane after plane along its first axis, float32 [C, planes, y, z], without gradients.

    Outputs of patches are weighted by a Gaussian around their middle. No more than a patch's planes are held at a time, so memory does not grow
    with the length of a volume. Equal to MONAI's ``SlidingWindowInferer(mode="gaussian")``.

    Parameters
    ----------
    network : callable
        Patches [n, channels, *patch] to logits [n, C, *patch].
    patch_at : callable
        Returns the patch [channels, *patch] that begins at a place, as the network takes it.
    sides : sequence of int
        Of the volume; a side that is smaller than the patch's is covered by one patch that begins before it.
    patch : sequence of int
        Sides of a patch.
    overlap : float
        Share of a patch that its neighbour covers, below 1.
    """
    starts = [window_starts(side, patch_side, overlap) for side, patch_side in zip(sides, patch, strict=True)]
    held = [max(side, patch_side) for side, patch_side in zip(sides, patch, strict=True)]
    before = [-patch_side[0] for patch_side in starts]  # planes, rows and columns of patches beyond a small volume
    weights = _weights(patch)
    across = list(product(starts[1], starts[2]))
    sums: Tensor | None = None
    total = torch.zeros(patch[0], *held[1:])
    for place, after in zip(starts[0], [*starts[0][1:], held[0] - before[0]], strict=True):
        for first_patch in range(0, len(across), PATCHES):
            several = across[first_patch : first_patch + PATCHES]
            with torch.no_grad():
                outputs = network(torch.stack([patch_at((place, *at)) for at in several])).float()
            if sums is None:
                weights = weights.to(outputs.device)
                total = total.to(outputs.device)
                sums = outputs.new_zeros(outputs.shape[1], patch[0], *held[1:])
            for (y, z), output in zip(several, outputs, strict=True):
                rows = slice(y + before[1], y + before[1] + patch[1])
                columns = slice(z + before[2], z + before[2] + patch[2])
                sums[:, :, rows, columns] += output * weights
                total[:, rows, columns] += weights
        assert sums is not None, "there is a patch"
        done = after - place
        first = max(0, -place)
        last = min(done, sides[0] - place)
        inside = (slice(before[1], before[1] + sides[1]), slice(before[2], before[2] + sides[2]))
        yield (sums[:, first:last] / total[first:last])[:, :, inside[0], inside[1]]
        sums = torch.cat([sums[:, done:], torch.zeros_like(sums[:, :done])], 1)
        total = torch.cat([total[done:], torch.zeros_like(total[:done])])


def window_starts(side: int, patch: int, overlap: float) -> list[int]:
    """Return where patches begin along an axis; of a volume smaller than a patch the one that has it in its middle."""
    if side <= patch:
        return [-((patch - side) // 2)]
    interval = max(1, int(patch * (1 - overlap)))
    count = -(-(side - patch) // interval) + 1
    return [min(n * interval, side - patch) for n in range(count)]


def _weights(patch: Sequence[int]) -> Tensor:
    """Return the weights of a patch's voxels, float32 [*patch]."""
    window = torch.ones(())
    for side in patch:
        place = torch.arange(side) - (side - 1) / 2
        window = window[..., None] * torch.exp(-(place**2) / (2 * (side * _SIGMA) ** 2))
    return window.clamp(min=_LEAST)

"""Images with masks that the tests draw themselves: bright discs on dark noise."""

import numpy as np
from PIL import Image


def disc(rng, side, *, empty=False):
    """Return an image, uint8 [side, side, 3], and its mask, uint8 [side, side], 1 on the disc."""
    rows, columns = np.mgrid[:side, :side]
    radius = rng.uniform(0.15, 0.3) * side
    centre = rng.uniform(radius, side - radius, 2)
    inside = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < radius**2
    mask = np.zeros((side, side), np.uint8) if empty else inside.astype(np.uint8)
    picture = rng.integers(0, 90, (side, side, 3)) + mask[..., None] * rng.integers(90, 160)
    return picture.astype(np.uint8), mask


def write_pairs(folder, count, seed, *, side=16, value=1, masks=None, empty=0):
    """Write images and masks under equal names into folders `images` and `masks`; the first `empty` masks are empty, only `masks` are written."""
    rng = np.random.default_rng(seed)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for row in range(count):
        picture, mask = disc(rng, side, empty=row < empty)
        Image.fromarray(picture).save(folder / "images" / f"{row:03d}.png")
        if masks is None or row < masks:
            Image.fromarray(mask * value).save(folder / "masks" / f"{row:03d}.png")

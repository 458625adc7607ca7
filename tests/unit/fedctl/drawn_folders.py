"""Folders of drawn images, a subfolder per class."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image


def fill(folder: Path, names: Sequence[str], count: int = 4, *, mode: str = "L", side: int = 20) -> None:
    """Draw `count` images of each class, whose pictures differ between folders, too; the class "" is flat."""
    rng = np.random.default_rng(list("/".join(folder.parts[-2:]).encode()))
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            pixels = rng.integers(0, 90, (side, side + 4), dtype=np.uint8)
            pixels[4:12, 4:12] += np.uint8(30 * number)
            Image.fromarray(pixels).convert(mode).save(folder / name / f"x{number}{index}.png")

"""Small images of many sizes and modes, drawn at random."""

from pathlib import Path

import numpy as np
from PIL import Image

KINDS = {
    "rgb.jpg": ("RGB", (20, 20)),
    "grey.jpg": ("L", (33, 17)),
    "cmyk.jpg": ("CMYK", (18, 30)),
    "alpha.png": ("RGBA", (16, 40)),
    "palette.png": ("P", (24, 24)),
    "deep.png": ("I;16", (20, 21)),
    "bits.png": ("1", (60, 8)),
    "greyalpha.png": ("LA", (20, 20)),
}


def draw_images(folder: Path, *classes: str) -> None:
    """Write one image of every kind into a folder per class."""
    random = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for file, (mode, (width, height)) in KINDS.items():
            if mode == "I;16":
                image = Image.fromarray(random.integers(0, 1 << 16, (height, width)).astype(np.uint16))
            else:
                image = Image.fromarray(random.integers(0, 256, (height, width, 4)).astype(np.uint8), "RGBA").convert(
                    mode
                )
            image.save(folder / name / file)


def cut_short(path: Path) -> None:
    """Leave only the beginning of a file."""
    path.write_bytes(path.read_bytes()[:200])
